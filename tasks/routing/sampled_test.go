package routing

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/route/epoch"
	"tailrace.dev/tailrace/tasks/status"
)

// sampling returns what routes by a table and samples.
func sampling(t testing.TB, groups int, places []route.Place) *sampled {
	table, err := route.NewTable(1, groups, 32, places)
	require.NoError(t, err)
	shown := status.New(time.Now, groups)
	shown.Output("keys", groups+32)
	s := newSampled(shown.Sampler(0, groups))
	s.table = table
	require.Same(t, s.to, shown.Sampler(0, groups), "instances of a task share it")
	require.Same(t, s.to, shown.Read("s", 0).Sent[0].Keys)
	return s
}

// One item of 128 is sampled, in no period; items go where the table says, and what is placed is not sampled.
func TestSampled(t *testing.T) {
	placed := []byte("placed")
	s := sampling(t, 8, []route.Place{{Part: route.Single(placed), Slot: 8}})
	const n = 640_000
	for i := range n {
		key := binary.BigEndian.AppendUint64(nil, uint64(i%64))
		hash := exec.HashKey(key)
		require.Equal(t, s.table.Group(hash, key), s.Group(hash, key))
		s.Group(exec.HashKey(placed), placed)
	}
	sample, total := s.to.Read(), 0.0
	for _, w := range sample.Parts {
		total += w
	}
	require.InDelta(t, n/each, total, n/each/5)
	require.Len(t, sample.Keys, 64)
	for _, k := range sample.Keys {
		require.InDelta(t, n/each/64, k.Count, 45, "an input with a period")
		require.NotEqual(t, string(placed), k.Key)
	}
	s.to.Reset()
	require.Empty(t, s.to.Read().Keys)
}

// Routing and sampling allocate nothing.
func TestSampledAllocatesNothing(t *testing.T) {
	s, keys, hashes := benchmarked(t)
	for i := range 1 << 20 {
		s.Group(hashes[i&4095], keys[i&4095])
	}
	i := 0
	require.Zero(t, testing.AllocsPerRun(100_000, func() {
		s.Group(hashes[i&4095], keys[i&4095])
		i++
	}))
}

func benchmarked(t testing.TB) (s *sampled, keys [][]byte, hashes []uint64) {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, 1<<20)
	for range 4096 {
		k := binary.BigEndian.AppendUint64(nil, z.Uint64())
		keys, hashes = append(keys, k), append(hashes, exec.HashKey(k))
	}
	return sampling(t, 64, nil), keys, hashes
}

// What sampling adds to an item: the same loop without it beside.
func BenchmarkSampled(b *testing.B) {
	s, keys, hashes := benchmarked(b)
	for name, r := range map[string]exec.Router{"table": s.table, "sampled": s} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			sum := 0
			for i := range b.N {
				sum += r.Group(hashes[i&4095], keys[i&4095])
			}
			require.True(b, sum >= 0)
		})
	}
}

// What was sampled is forgotten with another table of the stream, and not with one of another domain, for which only the epoch is new.
func TestSamplesOfOtherTables(t *testing.T) {
	key := []byte("sampled")
	s := sampling(t, 8, nil)
	o := output{to: exec.NewOutput(40), by: s, producer: epoch.NewProducer(s.table, 1)}
	s.to.Add(exec.HashKey(key), key)
	for i, places := range [][]route.Place{nil, {{Part: route.Single([]byte("placed")), Slot: 8}}} {
		table, err := route.NewTable(uint32(i+2), 8, 32, places)
		require.NoError(t, err)
		o.producer.Plan(table)
		require.True(t, o.producer.Take(false))
		o.route()
		require.Same(t, table, s.table)
		require.Len(t, s.to.Read().Keys, 1-i)
	}
}
