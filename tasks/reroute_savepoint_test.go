package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	logrecords "tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// placed returns the table of a stage in a savepoint, nil if it places nothing.
func placed(t *testing.T, m *savepoint.Manifest, stage string) *route.Table {
	st, err := m.Stage(stage)
	require.NoError(t, err)
	if st.Routes == nil {
		return nil
	}
	table, err := route.DecodeTable(st.Routes)
	require.NoError(t, err)
	require.Zero(t, table.Epoch)
	require.NotEmpty(t, table.Places())
	return table
}

// tablesOf returns the tables of a job by the names of its stages, without those that place nothing.
func tablesOf(t *testing.T, l *layout.Layout, of func(stage int) (*route.Table, error)) map[string][]route.Place {
	all := map[string][]route.Place{}
	for i := range l.Stages {
		table, err := of(i)
		require.NoError(t, err)
		if table != nil && len(table.Places()) > 0 {
			all[l.Plan.Stages[i].Name] = table.Places()
		}
	}
	return all
}

// saved returns the tables of a savepoint by the names of its stages.
func saved(t *testing.T, m *savepoint.Manifest) map[string][]route.Place {
	all := map[string][]route.Place{}
	for i := range m.Stages {
		if table := placed(t, m, m.Stages[i].Name); table != nil {
			all[m.Stages[i].Name] = table.Places()
		}
	}
	return all
}

// amidTables makes a savepoint "one" of a job when it has read so many items, while its tables are replaced, and copies the rows before it.
// It returns nil if the job has ended by then or has no row left to write.
func amidTables(t *testing.T, kind string, seed uint64, at int, o tasks.Options, copied string) *savepoint.Manifest {
	file := filepath.Join(t.TempDir(), "out")
	first := tallies[kind](seed, file, 2)
	log := mem.New(mem.Options{})
	job, err := tasks.Start(t.Context(), log, first.plan(t), o)
	require.NoError(t, err)
	var tables sync.WaitGroup
	tables.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 89))
		for job.Reroute(t.Context(), aReroute(rng, job, first.stages[rng.IntN(len(first.stages))])) == nil {
		}
	})
	for items(job, "keys") < at && !ended(job) {
		runtime.Gosched()
	}
	m, err := job.Savepoint(t.Context(), "one", true)
	if errors.Is(err, tasks.ErrEnded) {
		require.NoError(t, job.Wait())
		tables.Wait()
		return nil
	}
	require.NoError(t, err)
	require.Equal(t, savepoint.FormatSlots, m.Format)
	require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
	tables.Wait()
	p, _, err := logrecords.LastPlan(t.Context(), log, m.ID, m.At) // the next table may be in the log by now
	require.NoError(t, err)
	l := job.Layout()
	require.Equal(t, tablesOf(t, l, func(stage int) (*route.Table, error) { return routing.TableOf(l, stage, p) }), saved(t, m))
	upTo(t, m, file, copied)
	if len(lines(t, copied)) == len(first.want) {
		return nil
	}
	return m
}

// A savepoint is made while tables are replaced. Another job begins from it, in another log, with another parallelism and protocol: its
// state is where its items go from the first one on. Its tables are replaced, too, and at last nothing is placed, over crashes.
func TestReroutedOverSavepoints(t *testing.T) {
	for seed := range 2 * uint64(len(tallies)) {
		rng := rand.New(rand.NewPCG(seed, 88))
		kinds := slices.Sorted(maps.Keys(tallies))
		kind := kinds[int(seed/2)%len(kinds)]
		t.Run(fmt.Sprint(seed, " ", kind), func(t *testing.T) {
			t.Parallel()
			protocols := []string{"fused", "marker"}
			o := tasks.Options{
				Parallelism: 2 + rng.IntN(2), Groups: 8, Slots: 4, CommitInterval: time.Millisecond, Logger: quiet, Lead: 8 << 10, Protocol: protocols[seed%2],
				TrimBytes: 1, TrimInterval: time.Millisecond, SnapshotInterval: time.Millisecond,
			}
			var copied string
			var m *savepoint.Manifest
			for at := 4000 + rng.IntN(20_000); m == nil; at /= 2 {
				o.Checkpoints, copied = storetest.NewMem(), filepath.Join(t.TempDir(), "copied")
				m = amidTables(t, kind, seed, at, o, copied)
			}
			second := tallies[kind](seed, copied, 2)

			o.Name, o.From, o.Protocol, o.Parallelism = "second", "one", protocols[rng.IntN(2)], 1+rng.IntN(4)
			if strings.HasPrefix(kind, "key") { // whose items come from one partition a task
				o.Parallelism = 2 + rng.IntN(3)
			}
			log := mem.New(mem.Options{})
			overCrashes(t, rng, 12_000, func() *tasks.Job {
				job, err := tasks.Start(t.Context(), log, second.plan(t), o)
				require.NoError(t, err)
				return job
			}, func(job *tasks.Job, life int) {
				rng := rand.New(rand.NewPCG(seed, uint64(90+life)))
				if life == 0 && rng.IntN(2) == 0 { // it begins with the tables of the savepoint, and gets others later
					require.Equal(t, saved(t, m), tablesOf(t, job.Layout(), job.Table))
					for at := rng.IntN(10_000); items(job, "keys") < at && !ended(job); {
						runtime.Gosched()
					}
				}
				for n := rng.IntN(20); n >= 0; n-- {
					r := aReroute(rng, job, second.stages[rng.IntN(len(second.stages))])
					if n == 0 {
						r.Places = nil
					}
					if err := job.Reroute(t.Context(), r); err != nil && !errors.Is(err, rescale.ErrChanged) {
						return
					}
				}
			})
			sameRows(t, second.want, lines(t, copied))
			t.Log(len(saved(t, m)), "stages with places")
		})
	}
}

// stopped is a job in which stage by-key has counted some items, with these places, and that has stopped with a savepoint "one". It returns the
// options for another one that begins from it, and its rows so far.
func stopped(t *testing.T, w world, places []route.Place) (o tasks.Options, m *savepoint.Manifest, copied string) {
	return stoppedOf(t, counts, w, places)
}

// stoppedOf is stopped for a plan.
func stoppedOf(t *testing.T, plan func(*testing.T, string, operators.Source[int64]) *operators.Plan, w world, places []route.Place) (o tasks.Options, m *savepoint.Manifest, copied string) {
	dir := t.TempDir()
	file, copied := filepath.Join(dir, "out"), filepath.Join(dir, "copied")
	o = tasks.Options{Parallelism: 2, Groups: 8, Slots: 4, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: storetest.NewMem()}
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 4000}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan(t, file, g), o)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return items(job, "by-key") > 4000 }, time.Minute, time.Millisecond)
	require.NoError(t, job.Reroute(t.Context(), tasks.Reroute{Stage: "by-key", Places: places}))
	m, err = job.Savepoint(t.Context(), "one", true)
	require.NoError(t, err)
	require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
	upTo(t, m, file, copied)
	o.Name, o.From = "second", "one"
	return o, m, copied
}

// somePlaces are the half of each of four hash groups, of eight.
func somePlaces() (all []route.Place) {
	for i := range 4 {
		all = append(all, route.Place{Part: route.Part{Group: 2 * i, Sub: i, N: 8}, Slot: 8 + i})
	}
	return all
}

// What a savepoint has in slots is refused where the slots are others, or none; where nothing is in them, or there are none, a job can
// have as many as it likes.
func TestSlotsOfSavepoints(t *testing.T) {
	w := newWorld(5, 30_000, 2)
	start := func(o tasks.Options, file string) (*tasks.Job, error) {
		return tasks.Start(t.Context(), mem.New(mem.Options{}), w.plan(t, file), o)
	}
	o, m, copied := stopped(t, w, somePlaces())
	require.Equal(t, map[string][]route.Place{"by-key": somePlaces()}, saved(t, m))
	for slots, want := range map[int]string{
		0: `stage "by-key": the routing table of the savepoint places state in its 4 slots, and it has none here; give the job as many (--slots 4)`,
		5: `stage "by-key": the routing table of the savepoint places state in its 4 slots, and it has 5 here: their number cannot change; give the job as many (--slots 4)`,
	} {
		o.Slots = slots
		_, err := start(o, copied)
		require.ErrorIs(t, err, savepoint.ErrMismatch)
		require.ErrorContains(t, err, want)
	}
	o.Slots, o.Groups = 4, 4
	_, err := start(o, copied)
	require.ErrorIs(t, err, savepoint.ErrMismatch)
	require.ErrorContains(t, err, `stage "by-key" has 8 key groups in the savepoint, and 4 here`)
	o.Groups = 8
	job, err := start(o, copied)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, copied))

	for _, slots := range []int{0, 5} { // all was taken back
		o, m, copied = stopped(t, w, nil)
		require.Empty(t, saved(t, m))
		o.Slots = slots
		job, err := start(o, copied)
		require.NoError(t, err)
		require.NoError(t, job.Wait())
		sameRows(t, w.want, lines(t, copied))
	}

	// From a savepoint without slots.
	file := filepath.Join(t.TempDir(), "out")
	o.Name, o.From, o.Slots = "", "", 0
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 4000}
	job, err = tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), o)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return items(job, "by-key") > 4000 }, time.Minute, time.Millisecond)
	m, err = job.Savepoint(t.Context(), "without", true)
	require.NoError(t, err)
	require.Equal(t, 1, m.Format)
	require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
	upTo(t, m, file, file)
	o.Name, o.From, o.Slots, o.Parallelism = "second", "without", 4, 3
	g.open.Store(false)
	job, err = tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), o)
	require.NoError(t, err)
	require.NoError(t, job.Reroute(t.Context(), tasks.Reroute{Stage: "by-key", Places: somePlaces()}))
	g.open.Store(true)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, file))
}

// A change of a table, which its asker has given up, is completed before a savepoint is made.
func TestSavepointAwaitsTables(t *testing.T) {
	w := newWorld(6, 30_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	var adopting, gone sync.Once
	waits, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var waited, copied atomic.Int32
	o := tasks.Options{Parallelism: 2, Groups: 8, Slots: 4, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: storetest.NewMem()}
	o.Observer = func(e observe.Event) {
		switch e.Step {
		case observe.RoutePlanned:
			gone.Do(cancel) // who has asked for the table
		case observe.RouteAdopting:
			adopting.Do(func() {
				close(waits)
				<-release
			})
		case observe.RouteWaiting:
			waited.Add(1)
		case observe.SavepointCopied, observe.SavepointDraining:
			copied.Add(1)
		}
	}
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 4000}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), o)
	require.NoError(t, err)
	require.Error(t, job.Reroute(ctx, tasks.Reroute{Stage: "by-key", Places: somePlaces()}))
	<-waits
	before := waited.Load()
	made := make(chan error, 1)
	var m *savepoint.Manifest
	go func() {
		var err error
		m, err = job.Savepoint(t.Context(), "one", false)
		made <- err
	}()
	require.Eventually(t, func() bool { return waited.Load() > before }, time.Minute, time.Millisecond)
	require.Zero(t, copied.Load(), "nothing is copied, and no task has stopped")
	close(release)
	require.NoError(t, <-made)
	require.Equal(t, map[string][]route.Place{"by-key": somePlaces()}, saved(t, m))
	g.open.Store(true)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, file))
}

// A savepoint that was made again under its name, while the job of another one began, is refused: what is in the log is its table.
func TestSavepointMadeAgain(t *testing.T) {
	w := newWorld(5, 30_000, 2)
	o, _, copied := stopped(t, w, somePlaces())
	other, _, _ := stopped(t, w, somePlaces()[:2])
	log := mem.New(mem.Options{})
	plan := w.plan(t, copied)
	spec, err := tasks.Describe(plan, o)
	require.NoError(t, err)
	_, err = tasks.Register(t.Context(), log, o.Checkpoints, spec)
	require.NoError(t, err)
	again := o
	again.Checkpoints = other.Checkpoints
	job, err := tasks.Start(t.Context(), log, plan, again)
	require.NoError(t, err)
	require.ErrorIs(t, job.Wait(), savepoint.ErrMismatch)
	job, err = tasks.Start(t.Context(), log, plan, o)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, copied))
}

// save makes a savepoint of a fleet as a manager does: no key group is on its way, and no table changes. All tasks stop.
func (f *fleet) save(store checkpoint.Store, name string) *savepoint.Manifest {
	f.finishStep()
	const number = 7
	maker, _, err := f.spec.Savepoint(f.t.Context(), f.log, store, f.id, name, number)
	require.NoError(f.t, err)
	require.NoError(f.t, maker.Copy(f.t.Context()))
	f.drain(number)
	m, err := maker.Finish(f.t.Context())
	require.NoError(f.t, err)
	return m
}

// drain stops all tasks for a savepoint.
func (f *fleet) drain(number uint64) {
	for i := range f.executors {
		f.executors[i].Load().Drain(number)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, h := range f.tasks {
		select {
		case <-h.Done():
		case <-time.After(time.Minute):
			require.FailNow(f.t, "it does not stop", "task %v: %+v", k, h.Status())
		}
		if !f.retired[k] && h.Err() != nil {
			require.ErrorIs(f.t, h.Err(), tasks.ErrDrained, "task %v", k)
		}
	}
}

// Tables of tasks in other processes are replaced, the last time by a process that ends amid it. The job stops with a savepoint, and
// another one begins from it, whose tasks are in other processes, too.
func TestSavepointsOfOtherProcesses(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 91))
			w := newWorld(seed, 30_000, 2)
			dir := t.TempDir()
			file, copied := filepath.Join(dir, "out"), filepath.Join(dir, "copied")
			store := storetest.NewMem()
			connect := func(l *link) { l.store = store }
			o := tasks.Options{Slots: 4, Protocol: []string{"fused", "marker"}[seed%2], Checkpoints: store}
			f := fleetOf(t, counts(t, file, gate{optest.Items(delay, w.parts...), new(atomic.Bool), 4000}), o, connect)
			f.follow(0)
			for number := uint64(1); number < 4; number++ {
				r := aReroute(rng, f, "by-key")
				r.Number, r.Places = number, somePlaces()[number-1:]
				ctx, cancel := context.WithCancel(t.Context())
				d := newDying(f.log, 1)
				var log sharedlog.Log = f.log
				if number == 3 {
					log = &behind{d, cancel}
				}
				err := f.reroute(ctx, log, nil, []tasks.Reroute{r}, func(*rescale.Progress) {})
				require.Equal(t, number < 3, err == nil)
				cancel()
				d.bury()
			}
			m := f.save(store, "one")
			l := f.Layout()
			require.Equal(t, tablesOf(t, l, func(stage int) (*route.Table, error) { return f.spec.Table(t.Context(), f.log, f.id, stage) }), saved(t, m))
			require.NotEmpty(t, saved(t, m))
			upTo(t, m, file, copied)

			o.Name, o.From = "second", "one"
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 8000}
			f = fleetOf(t, counts(t, copied, g), o, connect)
			s := slices.IndexFunc(l.Plan.Stages, func(x exec.StageSpec) bool { return x.Name == "by-key" })
			table, err := f.spec.Table(t.Context(), f.log, f.id, s)
			require.NoError(t, err)
			require.Equal(t, saved(t, m)["by-key"], table.Places())
			f.follow(0)
			for number := uint64(1); number < 6; number++ {
				r := aReroute(rng, f, "by-key")
				if r.Number = number; number == 5 {
					r.Places = nil
				}
				var last *rescale.Progress
				require.NoError(t, f.reroute(t.Context(), f.log, nil, []tasks.Reroute{r}, func(p *rescale.Progress) { last = p }))
				require.Len(t, last.Rerouted, 1)
				require.Empty(t, last.Rerouted[0].Error)
			}
			g.open.Store(true)
			f.end()
			sameRows(t, w.want, lines(t, copied))
		})
	}
}
