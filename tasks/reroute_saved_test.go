package tasks_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
)

// A table takes back what is in the slot that is a task's only key group. A savepoint is made of the task without key groups, too.
func TestSavepointOfTaskWithoutGroups(t *testing.T) {
	w := newWorld(8, 30_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	o, _, copied := stopped(t, w, nil)
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 8000}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, copied, g), o)
	require.NoError(t, err)
	owners := slices.Repeat([]int{0}, 12)
	owners[8] = 1
	require.NoError(t, job.Reroute(t.Context(), tasks.Reroute{Stage: "by-key", Places: half(0, 8), Owners: owners}))
	require.NoError(t, job.Reroute(t.Context(), tasks.Reroute{Stage: "by-key"}))
	require.NotContains(t, job.Layout().Stages[byKey].Owner, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := job.Savepoint(ctx, "two", true)
	require.NoError(t, err)
	require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
	upTo(t, m, copied, file)
	o.Name, o.From, o.Parallelism = "third", "two", 3
	g.open.Store(true)
	job, err = tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), o)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, file))
}

// direct counts each key per 100 ms, in tasks that the source sends to.
func direct(t *testing.T, file string, src operators.Source[int64]) *operators.Plan {
	job := operators.NewJob("direct")
	keys := operators.FromSource(job, "keys", src, serde.Int64)
	counts := operators.CountWindows(operators.KeyBy(keys, "by-key", serde.Int64, func(k *int64) int64 { return *k }), operators.Tumbling(100*time.Millisecond))
	operators.ToSink(counts, "out", operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
		return fmt.Appendf(dst, "%d %d %d\n", c.Value.Start, c.Key, c.Value.Value)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

// A manager that was deposed, and does not know it, takes what is in slots back while the next one makes a savepoint. One of the
// sources stops before it learns of that table, so no task adopts it, but their state is where it says: there is no savepoint by the
// table of before. The job continues, and the next savepoint has the new one.
func TestSavepointAmidPlanOfAnother(t *testing.T) {
	w := newWorld(5, 30_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	o, _, copied := stoppedOf(t, direct, w, somePlaces())
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 8000}
	f := fleetOf(t, direct(t, copied, g), o, func(l *link) { l.store = o.Checkpoints })
	f.finishStep()
	const number = 6
	maker, _, err := f.spec.Savepoint(t.Context(), f.log, o.Checkpoints, f.id, "two", number)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	d := newDying(f.log, 1)
	require.ErrorIs(t, f.reroute(ctx, &behind{d, cancel}, nil, []tasks.Reroute{{Stage: "by-key", Number: 1}}, func(*rescale.Progress) {}), context.Canceled)
	d.bury()
	require.Eventually(t, func() bool { return f.count(observe.RouteRehomed) == 2 }, time.Minute, time.Millisecond)
	f.drain(number)
	_, err = maker.Finish(t.Context())
	require.EqualError(t, err, `savepoint "two": the newest plan of the job is 2, not 1: another process moves key groups, or replaces a routing table`)

	for i := range f.executors {
		f.executors[i].Load().Drain(0)
	}
	f.follow(0)
	for k := range maps.Clone(f.tasks) {
		_, err := f.begin(k[0], k[1], false)
		require.NoError(t, err)
	}
	m := f.save(o.Checkpoints, "two")
	require.Empty(t, saved(t, m))
	upTo(t, m, copied, file)
	o.Name, o.From, o.Slots = "third", "two", 0
	g.open.Store(true)
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), direct(t, file, g), o)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, file))
}
