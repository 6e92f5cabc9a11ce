package tasks_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/state"
)

// A stage is rescaled again and again, and what the process uses does not grow with it: disk, since the
// log is trimmed between the steps, goroutines and memory, and what is in the store of state, of which next to
// nothing stays in memory. TAILRACE_MINUTES=N does so 64 times a minute for N minutes (make rescale-flat).
func TestManyRescalesLeaveNothing(t *testing.T) {
	t.Run("state in memory", func(t *testing.T) {
		manyRescales(t, nil, func(n int, due func(k int) int64, file string) (*operators.Plan, []string) {
			return working(t, n, due, 0, file)
		})
	})
	t.Run("state on disk", func(t *testing.T) {
		manyRescales(t, onDisk(t), func(n int, due func(k int) int64, file string) (*operators.Plan, []string) {
			return visits(t, n, due, file)
		})
	})
}

// visits is a job that counts the items of the sessions of each key. Sessions stay open until the end, and their timers move
// with each item.
func visits(t *testing.T, n int, due func(k int) int64, file string) (plan *operators.Plan, want []string) {
	const keys, gap = 251, 3_600_000
	var items []optest.Timed[int64]
	for i := range n {
		items = append(items, optest.At(int64(i), int64(i%keys)))
	}
	for key := range min(keys, n) {
		last := (n-1-key)/keys*keys + key
		want = append(want, fmt.Sprintf("%d %d %d %d", key, last+gap, key, 1+last/keys))
	}
	slices.Sort(want)
	job := operators.NewJob("visits")
	src := operators.FromSource(job, "keys", scheduled{optest.Items(0, items), due}, serde.Int64)
	byKey := operators.KeyBy(src, "by-key", serde.Int64, func(k *int64) int64 { return *k })
	operators.ToSink(operators.AggregateSessions(byKey, "visits", gap*time.Millisecond, operators.Counting[int64]()), "out",
		operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
			return fmt.Appendf(dst, "%d %d %d %d\n", c.Value.Start, c.Value.End, c.Key, c.Value.Value)
		}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan, want
}

func manyRescales(t *testing.T, home *state.Pebble, build func(n int, due func(k int) int64, file string) (plan *operators.Plan, want []string)) {
	rescales, every := 40, 100*time.Millisecond
	if v := os.Getenv("TAILRACE_MINUTES"); v != "" {
		minutes, err := strconv.Atoi(v)
		require.NoError(t, err)
		rescales, every = 64*minutes, time.Minute/64
	}
	const rate = 5 // items a ms
	begin := time.Now().UnixMilli()
	n := rate * (rescales + 32) * int(every.Milliseconds())
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	var rescaled atomic.Bool
	plan, want := build(n, func(k int) int64 {
		at := begin + int64(k)/rate
		if k >= n-rate && !rescaled.Load() { // on a busy machine rescales take longer: the job must not end before the last one
			at = max(at, time.Now().UnixMilli()+20)
		}
		return at
	}, file)
	log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Logger: quiet})
	require.NoError(t, err)
	job, err := tasks.Start(t.Context(), log, plan, tasks.Options{
		Parallelism: 2, Groups: 64, CommitInterval: 10 * time.Millisecond, Logger: quiet, State: home,
		Checkpoints: storetest.NewMem(), SnapshotInterval: 10 * time.Millisecond, TrimBytes: 64 << 10, TrimInterval: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	type use struct {
		disk       int64
		heap       uint64
		goroutines int
		entries    int // of state on disk
	}
	var all []use
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range rescales {
		<-tick.C
		_, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: []int{8, 3, 5, 2}[i%4]})
		require.NoError(t, err)
		if i%4 != 3 { // equally many tasks each time
			continue
		}
		u := use{goroutines: runtime.NumGoroutine()}
		require.NoError(t, filepath.WalkDir(filepath.Join(dir, "log"), func(path string, d fs.DirEntry, err error) error {
			if st, serr := os.Stat(path); serr == nil && !d.IsDir() && d.Name() != "BALLAST" { // it may just have been deleted; the ballast comes once
				u.disk += st.Size()
			}
			return nil
		}))
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		u.heap = m.HeapAlloc
		if home != nil {
			u.entries, err = home.Entries()
			require.NoError(t, err)
		}
		all = append(all, u)
	}
	rescaled.Store(true)
	most := func(of []use, f func(u use) int64) int64 {
		n := f(of[0])
		for _, u := range of {
			n = max(n, f(u))
		}
		return n
	}
	// Of goroutines the least: those of a task or snapshot that is just ending are not left.
	least := func(of []use, f func(u use) int64) int64 { return -most(of, func(u use) int64 { return -f(u) }) }
	first, last := all[len(all)/4:len(all)/2], all[len(all)*3/4:]
	for _, c := range []struct {
		what  string
		which func(of []use, f func(u use) int64) int64
		of    func(u use) int64
		slack int64
	}{
		{"bytes on disk", most, func(u use) int64 { return u.disk }, 3 << 20}, // segments
		{"bytes of memory", most, func(u use) int64 { return int64(u.heap) }, 8 << 20},
		{"goroutines", least, func(u use) int64 { return int64(u.goroutines) }, 8},
		{"entries of state on disk", most, func(u use) int64 { return int64(u.entries) }, 200},
	} {
		before, after := c.which(first, c.of), c.which(last, c.of)
		t.Logf("%s: %d in the second quarter, %d in the last one", c.what, before, after)
		require.LessOrEqual(t, after, before+before/10+c.slack, c.what)
	}
	require.NoError(t, job.Wait())
	require.NoError(t, log.Close())
	got := lines(t, file)
	slices.Sort(got)
	require.Equal(t, want, got)
}
