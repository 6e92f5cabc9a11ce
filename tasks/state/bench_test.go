package state_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks/state"
)

// BenchmarkWindows counts by key and sliding window (10 s, every 2 s), 100 000 items a second of
// event time: in memory, in a store with room for all panes, and in one with room for a few of
// them. Keys come in random order, each about as often.
func BenchmarkWindows(b *testing.B) {
	for _, keys := range []int64{10_000, 1_000_000} {
		for _, where := range []struct {
			name   string
			memory int
		}{{"memory", 0}, {"room for all", 4 << 30}, {"16 MiB", 16 << 20}} {
			b.Run(fmt.Sprintf("%d keys/%s", keys, where.name), func(b *testing.B) { benchWindows(b, keys, where.memory) })
		}
	}
}

func benchWindows(b *testing.B, keys int64, memory int) {
	job := operators.NewJob("bench")
	src := operators.FromSource(job, "src", optest.Items[int64](0, nil), serde.Int64)
	in := operators.KeyBy(src, "in", serde.Int64, func(k *int64) int64 { return *k })
	counts := operators.CountWindows(in, operators.Sliding(10*time.Second, 2*time.Second))
	operators.ToSink(counts, "out", nowhere[operators.KV[int64, operators.Windowed[int64]]]{})
	plan, err := job.Plan()
	require.NoError(b, err)
	rt := &runtime{roomy: true}
	for range plan.Stages[1].Outputs {
		rt.outs = append(rt.outs, exec.NewOutput(groups))
	}
	if memory > 0 {
		p, err := state.OpenPebble(filepath.Join(b.TempDir(), "state"), memory)
		require.NoError(b, err)
		defer p.Close()
		task := p.Task()
		defer task.Close()
		rt.homes = task.Table
	}
	c, err := plan.Stages[1].New(rt)
	require.NoError(b, err)
	changes := exec.NewOutput(groups)
	commit := func() {
		require.NoError(b, c.Flush())
		for i, t := range c.Tables() {
			t.Changes(i, changes)
		}
		changes.Reset()
		for _, o := range rt.outs {
			o.Reset()
		}
	}
	const batch = 2_000 // 20 ms
	var x uint64
	at := int64(0)
	one := func() {
		var sections [groups][]byte
		var n [groups]int
		var last [groups]int64
		for i := range int64(batch) {
			x = x*6364136223846793005 + 1442695040888963407
			key := int64(x>>20) % keys
			enc := serde.Int64.Append(nil, &key)
			g := exec.GroupOf(exec.HashKey(enc), groups)
			t := at + i/100
			sections[g] = append(append(serde.AppendInt64(sections[g], t-last[g]), enc...), enc...)
			n[g], last[g] = n[g]+1, t
		}
		at += batch / 100
		b.StartTimer()
		for g, s := range sections {
			_, err := c.Process(&exec.In{Group: g, Items: n[g]}, s, exec.Budget{})
			require.NoError(b, err)
		}
		for done := false; !done; {
			did, err := c.Advance(exec.Bounds{Time: at}, exec.Budget{Bytes: 1 << 20})
			require.NoError(b, err)
			done = did.All
			commit()
		}
		b.StopTimer()
	}
	for range 15_000 / (batch / 100) { // all windows are full
		one()
	}
	b.ResetTimer()
	for range b.N {
		one()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/event")
}
