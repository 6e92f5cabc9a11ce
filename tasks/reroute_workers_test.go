package tasks_test

import (
	"context"
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

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	logrecords "tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/rescale"
)

// Layout returns the layout as of the newest plan.
func (f *fleet) Layout() *layout.Layout {
	l, err := f.spec.Present(f.t.Context(), f.log, f.id)
	require.NoError(f.t, err)
	return l
}

// newest returns the newest plan.
func (f *fleet) newest() *envelope.Plan {
	tail, err := f.log.Tail(f.t.Context())
	require.NoError(f.t, err)
	p, _, err := logrecords.LastPlan(f.t.Context(), f.log, f.id, tail)
	require.NoError(f.t, err)
	return p
}

// reroute drives requests by a process that has a log.
func (f *fleet) reroute(ctx context.Context, log sharedlog.Log, asked []rescale.Request, tables []tasks.Reroute, tell func(*rescale.Progress)) error {
	r, err := f.spec.Rescaler(f.t.Context(), log, f.id, tasks.Options{Logger: quiet})
	require.NoError(f.t, err)
	return r.Drive(ctx, ctx, f, asked, tables, tell)
}

// runs reports whether a task of a stage runs.
func (f *fleet) runs(stage int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, h := range f.tasks {
		if k[0] == stage && !over(h) {
			return true
		}
	}
	return false
}

// tabling replaces tables of stages until the tasks of the source have ended. One process after the other drives a request, and ends amid it.
// It returns how many requests were carried out.
func (f *fleet) tabling(rng *rand.Rand, stages []string) (done int) {
	for number := uint64(1); f.runs(0); number++ {
		r := aReroute(rng, f, stages[rng.IntN(len(stages))])
		r.Number = number
		if rng.IntN(2) == 0 { // as a balancer asks
			p := f.newest()
			r.Epoch = p.Epoch
			for i := range p.Stages {
				if p.Stages[i].Name == r.Stage {
					r.Have = p.Stages[i].Owners
				}
			}
		}
		for {
			ctx, cancel := context.WithCancel(f.t.Context())
			left := rng.IntN(6)
			var last *rescale.Progress
			err := f.reroute(ctx, f.log, nil, []tasks.Reroute{r}, func(p *rescale.Progress) {
				last = p
				if left--; left == 0 {
					cancel()
				}
			})
			cancel()
			if err != nil {
				require.ErrorIs(f.t, err, context.Canceled)
				continue
			}
			require.Len(f.t, last.Rerouted, 1)
			if why := last.Rerouted[0].Error; why != "" {
				require.Contains(f.t, why, rescale.ErrStageEnded.Error())
				return done
			}
			done++
			break
		}
	}
	return done
}

// Tables of tasks in other processes are replaced, as one process after the other asks: what each operator keeps is in the key group
// that the table says.
func TestReroutedInOtherProcesses(t *testing.T) {
	for i, kind := range slices.Sorted(maps.Keys(tallies)) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			seed := uint64(i)
			file := filepath.Join(t.TempDir(), "out")
			x := tallies[kind](seed, file, 2)
			f := fleetOf(t, x.plan(t), tasks.Options{Slots: 4, Protocol: []string{"fused", "marker"}[i%2]}, nil)
			f.follow(0)
			n := f.tabling(rand.New(rand.NewPCG(seed, 84)), x.stages)
			f.end()
			sameRows(t, x.want, lines(t, file))
			t.Log(n, "requests")
		})
	}
}

// Workers end, and others take their tasks over, while tables change: with snapshots and without, commits between items, whether the
// processes reach each other or not.
func TestWorkersDieWhileTablesChange(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 86))
		kinds := slices.Sorted(maps.Keys(tallies))
		kind := kinds[int(seed)%len(kinds)]
		t.Run(fmt.Sprint(seed, " ", kind), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "out")
			x := tallies[kind](seed, file, 2)
			o := tasks.Options{Slots: 4, Protocol: []string{"fused", "marker"}[seed/2%2]}
			if rng.IntN(2) == 0 {
				o.CommitBytes = 1 << 10
			}
			connect, store := func(l *link) {}, storetest.NewMem()
			switch rng.IntN(3) {
			case 0:
				connect = nil
			case 1:
				connect = func(l *link) { l.store = store }
			}
			f := fleetOf(t, x.plan(t), o, connect)
			f.follow(0)
			var crashes sync.WaitGroup
			over := make(chan struct{})
			crashed := 0
			crashes.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 87))
				for ; crashed < 20; crashed++ {
					tail, err := f.log.Tail(t.Context())
					require.NoError(t, err)
					for to := tail + sharedlog.LSN(50+rng.IntN(1000)); tail < to; {
						select {
						case <-over:
							return
						default:
						}
						tail, err = f.log.Tail(t.Context())
						require.NoError(t, err)
						runtime.Gosched()
					}
					f.crash(rng.IntN(2))
				}
			})
			n := f.tabling(rng, x.stages)
			close(over)
			crashes.Wait()
			f.end()
			sameRows(t, x.want, lines(t, file))
			t.Log(n, "requests,", crashed, "crashes")
		})
	}
}

// behind ends a process when the plan that it appends is in the log: nothing that it appends then is.
type behind struct {
	*dying
	end context.CancelFunc
}

func (b *behind) Append(g sharedlog.Group) *sharedlog.Pending {
	p := b.dying.Append(g)
	go func() {
		if _, err := p.Wait(context.Background()); err == nil {
			b.end()
		}
	}()
	return p
}

// A change of a table takes four plans: a part goes back, a slot goes to the owner of what is to be in it, the table has it, and
// the slot goes where it is wanted. The manager ends behind each of them, and the next one continues, although the owners
// are not those that the request was made for.
func TestRerouteIsContinued(t *testing.T) {
	w := newWorld(1, 20_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	f := fleetOf(t, counts(t, file, g), tasks.Options{Slots: 4}, nil)
	f.follow(0)
	const stage = "by-key"
	var last *rescale.Progress
	tell := func(p *rescale.Progress) { last = p }
	part := func(group int) route.Part { return route.Part{Group: group, N: 8} }
	first := tasks.Reroute{Stage: stage, Number: 5, Places: []route.Place{{Part: part(0), Slot: 8}}}
	require.NoError(t, f.reroute(t.Context(), f.log, nil, []tasks.Reroute{first}, tell))
	require.Len(t, last.Rerouted, 1)
	require.Empty(t, last.Rerouted[0].Error)
	require.EqualValues(t, 1, last.Epoch)
	require.Empty(t, last.String(), "nothing is under way")

	had := f.newest()
	owners := slices.Clone(had.Stages[byKey].Owners)
	require.Equal(t, []int{1, 0}, []int{owners[4], owners[9]}, "slot 9 is to be claimed")
	change := tasks.Reroute{Stage: stage, Number: 9, Places: []route.Place{{Part: part(4), Slot: 9}}, Owners: owners, Have: owners, Epoch: 1}
	lives := 0
	for ended := false; !ended; lives++ {
		ctx, cancel := context.WithCancel(t.Context())
		d := newDying(f.log, 1)
		err := f.reroute(ctx, &behind{d, cancel}, nil, []tasks.Reroute{change}, tell)
		cancel()
		d.bury()
		ended = err == nil
		require.Less(t, lives, 20)
		p := f.newest()
		if p.Number > had.Number {
			require.EqualValues(t, 9, p.Request)
		}
		require.LessOrEqual(t, p.Number, had.Number+4)
	}
	p := f.newest()
	require.Equal(t, had.Number+4, p.Number)
	require.EqualValues(t, 3, p.Epoch)
	require.Equal(t, owners, p.Stages[byKey].Owners)
	require.GreaterOrEqual(t, lives, 4)
	require.Len(t, last.Rerouted, 1)
	require.Empty(t, last.Rerouted[0].Error)

	// Another request is void: the owners are the same, and the table is another one. A plan above a step of it that is none ends it, too.
	change.Number++
	require.NoError(t, f.reroute(t.Context(), f.log, nil, []tasks.Reroute{change}, tell))
	require.Contains(t, last.Rerouted[0].Error, rescale.ErrChanged.Error())
	require.NoError(t, f.reroute(t.Context(), f.log, []rescale.Request{{Stage: stage, Tasks: 3}}, nil, tell))
	require.Zero(t, f.newest().Request)
	change.Number--
	require.NoError(t, f.reroute(t.Context(), f.log, nil, []tasks.Reroute{change}, tell))
	require.Contains(t, last.Rerouted[0].Error, rescale.ErrChanged.Error())
	g.open.Store(true)
	f.end()
	sameRows(t, w.want, lines(t, file))
}

// The request that the newest plan is a step of comes first, whatever else is asked for: a plan of another one would end it.
func TestStartedComesFirst(t *testing.T) {
	w := newWorld(1, 20_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	f := fleetOf(t, counts(t, file, g), tasks.Options{Slots: 4}, nil)
	f.follow(0)
	had := f.newest()
	have := had.Stages[byKey].Owners
	owners := slices.Clone(have)
	owners[1] = 1
	started := tasks.Reroute{Stage: "by-key", Number: 3, Places: []route.Place{{Part: route.Part{Group: 0, N: 8}, Slot: 8}}, Owners: owners, Have: have}
	ctx, cancel := context.WithCancel(t.Context())
	d := newDying(f.log, 1)
	_ = f.reroute(ctx, &behind{d, cancel}, nil, []tasks.Reroute{started}, func(*rescale.Progress) {}) // ends behind its first plan
	cancel()
	d.bury()
	require.Equal(t, had.Number+1, f.newest().Number)
	var last *rescale.Progress
	require.NoError(t, f.reroute(t.Context(), f.log, []rescale.Request{{Stage: "by-key", Tasks: 3}}, []tasks.Reroute{
		{Stage: "by-key", Number: 2, Have: have}, started,
	}, func(p *rescale.Progress) { last = p }))
	require.Len(t, last.Rerouted, 2)
	require.Equal(t, 1, last.Rerouted[0].Request)
	require.Empty(t, last.Rerouted[0].Error)
	require.Contains(t, last.Rerouted[1].Error, rescale.ErrChanged.Error(), "it was made for other owners")
	require.Len(t, last.Done, 1)
	require.Empty(t, last.Done[0].Error)
	require.Equal(t, 3, f.newest().Stages[byKey].Tasks)
	g.open.Store(true)
	f.end()
	sameRows(t, w.want, lines(t, file))
}

// Requests that can never be carried out have an outcome that says why, and keep nothing from the others.
func TestRequestsThatCannotBe(t *testing.T) {
	const groups, all = 1024, 1024 + 256
	job := operators.NewJob("wide")
	none := []optest.Timed[int64]{}
	in := operators.FromSource(job, "keys", optest.Items(0, none), serde.Int64)
	type keyed = operators.KV[int64, int64]
	self := func(v *int64) int64 { return *v }
	first := operators.Process(operators.KeyBy(in, "one", serde.Int64, self), "first", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
		seen := operators.NewMap(c, "seen", serde.Int64, serde.Int64)
		return operators.Handler[int64]{Item: func(v *int64) { *seen.Upsert(0)++; c.Emit(*v, c.Time()) }}
	}).With(serde.Int64)
	for _, name := range []string{"two", "three", "four"} { // whose key groups a commit of the first stage may touch, all
		operators.ToSink(operators.KeyBy(first, name, serde.Int64, func(kv *keyed) int64 { return kv.Value }), "out of "+name, operators.FuncSink(func(*operators.Batch[operators.KV[int64, keyed]]) error { return nil }))
	}
	plan, err := job.Plan()
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 8, Groups: groups, Slots: 256, Logger: quiet})
	require.NoError(t, err)
	id, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	l, err := spec.Present(t.Context(), log, id)
	require.NoError(t, err)
	most := l.Most(1)
	require.Less(t, most, all)
	owners := func(first int) []int { // the first task has so many
		o := slices.Clone(l.Stages[1].Owner)
		for g := range first {
			o[g] = 0
		}
		return o
	}
	place := func(slot int) route.Place { return route.Place{Part: route.Part{Group: 3, N: 4}, Slot: slot} }
	tables := []tasks.Reroute{
		{Stage: "nothing"},
		{Stage: "keys"},
		{Stage: "one", Owners: []int{0, 1}},
		{Stage: "one", Owners: slices.Repeat([]int{0}, all)},
		{Stage: "one", Owners: append(slices.Clone(l.Stages[1].Owner)[:all-1], 8)},
		{Stage: "one", Owners: owners(most + 1)},
		{Stage: "one", Owners: owners(most + 1), Places: []route.Place{place(groups)}}, // the table alone could be
		{Stage: "one", Places: []route.Place{place(all)}},
		{Stage: "one", Places: []route.Place{place(groups), place(groups + 1)}},
		{Stage: "one", Have: owners(200)},
		{Stage: "one", Have: l.Stages[1].Owner, Epoch: 4},
	}
	want := []string{"no stage \"nothing\"", "reads no stream with slots", "owners are given for 2", "task 1 owns no key group", "has owner 8", "use fewer key groups", "use fewer key groups", "", "", rescale.ErrChanged.Error(), rescale.ErrChanged.Error()}
	f := &fleet{t: t, log: log, spec: spec, id: id, changed: make(chan struct{}, 1)}
	var last *rescale.Progress
	require.NoError(t, f.reroute(t.Context(), log, []rescale.Request{{Stage: "one", Tasks: 8, Owners: owners(most + 1)}}, tables, func(p *rescale.Progress) { last = p }))
	require.Len(t, last.Rerouted, len(tables))
	for i, o := range last.Rerouted {
		require.Equal(t, i, o.Request)
		require.NotEmpty(t, o.Error, "%+v", tables[i])
		require.True(t, strings.Contains(o.Error, want[i]), "%s: %s", want[i], o.Error)
	}
	require.Contains(t, last.Done[0].Error, "use fewer key groups")
	require.EqualValues(t, 1, f.newest().Number, "nothing was done")
}
