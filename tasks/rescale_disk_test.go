package tasks_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// A stage is rescaled again and again, and what the process uses does not grow with it: disk, since the
// log is trimmed between the steps, goroutines and memory. TAILRACE_MINUTES=N does so 64 times a minute for N
// minutes (make rescale-flat).
func TestManyRescalesLeaveNothing(t *testing.T) {
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
	plan, want := working(t, n, func(k int) int64 { return begin + int64(k)/rate }, 0, file)
	log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Logger: quiet})
	require.NoError(t, err)
	job, err := tasks.Start(t.Context(), log, plan, tasks.Options{
		Parallelism: 2, Groups: 64, CommitInterval: 10 * time.Millisecond, Logger: quiet,
		Checkpoints: storetest.NewMem(), SnapshotInterval: 10 * time.Millisecond, TrimBytes: 64 << 10, TrimInterval: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	type use struct {
		disk       int64
		heap       uint64
		goroutines int
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
			if st, serr := os.Stat(path); serr == nil && !d.IsDir() { // it may just have been deleted
				u.disk += st.Size()
			}
			return nil
		}))
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		u.heap = m.HeapAlloc
		all = append(all, u)
	}
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
