package tasks_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/status"
)

// fleet runs the tasks of a job in two executors, as two workers would, one of which follows the plans. It
// implements rescale.Tasks.
type fleet struct {
	t         *testing.T
	log       sharedlog.Log
	spec      *tasks.Spec
	id        string
	join      func(i int) *tasks.Executor
	executors [2]atomic.Pointer[tasks.Executor]
	life      context.Context // of what runs beside the tasks
	changed   chan struct{}
	wait      sync.WaitGroup

	mu      sync.Mutex
	tasks   map[[2]int]*tasks.Handle
	retired map[[2]int]bool
	counts  sync.Mutex // guards steps
	steps   map[observe.Step]int
}

// count returns how often a step was reached.
func (f *fleet) count(s observe.Step) int {
	f.counts.Lock()
	defer f.counts.Unlock()
	return f.steps[s]
}

// newFleet starts a fleet. connect sets what connects the executors; nil: nothing does.
func newFleet(t *testing.T, file string, source gate, protocol string, connect func(l *link)) *fleet {
	return fleetOf(t, counts(t, file, source), tasks.Options{Protocol: protocol}, connect)
}

// fleetOf is newFleet for a plan.
func fleetOf(t *testing.T, plan *operators.Plan, o tasks.Options, connect func(l *link)) *fleet {
	f := &fleet{
		t: t, log: mem.New(mem.Options{}), changed: make(chan struct{}, 1), tasks: map[[2]int]*tasks.Handle{}, retired: map[[2]int]bool{},
		steps: map[observe.Step]int{},
	}
	o.Parallelism, o.Groups, o.CommitInterval, o.Logger, o.TrimBytes = 2, 8, time.Millisecond, quiet, -1
	o.Observer = func(e observe.Event) {
		f.counts.Lock()
		f.steps[e.Step]++
		f.counts.Unlock()
		if e.Step == observe.RescaleSilent {
			select {
			case f.changed <- struct{}{}:
			default:
			}
		}
	}
	var err error
	f.spec, err = tasks.Describe(plan, o)
	require.NoError(t, err)
	f.id, err = tasks.Register(t.Context(), f.log, o.Checkpoints, f.spec)
	require.NoError(t, err)
	f.join = func(i int) *tasks.Executor {
		log, o := f.log, o
		if connect != nil {
			l := &link{f: f, me: i}
			connect(l)
			o.Peers = l
			if l.log != nil {
				log = l.log
			}
			if l.clock != nil {
				o.Clock = l.clock
			}
			if l.store != nil {
				o.Checkpoints, o.SnapshotInterval = l.store, time.Millisecond
			}
		}
		e, err := tasks.Join(context.Background(), log, f.spec, f.id, plan, o)
		require.NoError(t, err)
		return e
	}
	for i := range f.executors {
		f.executors[i].Store(f.join(i))
	}
	var cancel context.CancelFunc
	f.life, cancel = context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		f.wait.Wait()
	})
	f.follow(1)
	n, err := f.spec.Tasks()
	require.NoError(t, err)
	for s := range n {
		for i := range n[s] {
			_, err := f.begin(s, i, false)
			require.NoError(t, err)
		}
	}
	return f
}

// follow lets an executor follow the plans.
func (f *fleet) follow(i int) {
	e := f.executors[i].Load()
	f.wait.Go(func() { _ = e.Config().Handover.Follow(f.life) }) // ends with it
}

// crash ends a process, and another one takes its place, which follows the plans.
func (f *fleet) crash(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var again [][2]int
	for k, h := range f.tasks {
		if (k[0]+k[1])%2 == i && !over(h) {
			h.Kill()
			again = append(again, k)
		}
	}
	for _, k := range again {
		<-f.tasks[k].Done()
	}
	f.executors[i].Store(f.join(i))
	f.follow(i)
	for _, k := range again {
		h := f.tasks[k]
		if h.Err() == nil || f.retired[k] {
			continue
		}
		_, err := f.start(k, h.Newcomer())
		require.NoError(f.t, err)
	}
}

// keys returns how many keys of state a stage has, as of its tasks' last commits.
func (f *fleet) keys(stage int) (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, h := range f.tasks {
		if k[0] == stage {
			n += h.Status().StateKeys
		}
	}
	return n
}

// moved returns how the state came that the tasks of the keyed stage have taken over.
func (f *fleet) moved() (sum status.Moved) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, h := range f.tasks {
		if m := h.Status().Moved; k[0] == byKey && m != nil {
			sum.Add(m, 1)
		}
	}
	return sum
}

func (f *fleet) begin(stage, task int, newcomer bool) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.start([2]int{stage, task}, newcomer)
}

// start is begin for a caller that holds f.mu.
func (f *fleet) start(k [2]int, newcomer bool) (bool, error) {
	stage, task := k[0], k[1]
	if h := f.tasks[k]; h != nil && !over(h) {
		return false, nil
	}
	e := f.executors[(stage+task)%2].Load()
	h, err := e.Prepare(stage, task, tasks.Attempt{}, newcomer)
	if err != nil {
		return false, err
	}
	f.tasks[k] = h
	delete(f.retired, k)
	e.Start(context.Background(), h)
	return true, nil
}

func over(h *tasks.Handle) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}

func (f *fleet) Enter(stage, task int, _ []int) (bool, error) { return f.begin(stage, task, true) }

func (f *fleet) Retire(stage, task int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retired[[2]int{stage, task}] = true
	f.tasks[[2]int{stage, task}].Kill()
}

func (f *fleet) Restart() error { return rescale.ErrRestart }

func (f *fleet) Runs(stage, task int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.tasks[[2]int{stage, task}]
	return h != nil && !over(h) && h.Instance() > 0
}

func (f *fleet) Changed() <-chan struct{} { return f.changed }
func (f *fleet) Done() <-chan struct{}    { return nil }

// end waits for the end of all tasks.
func (f *fleet) end() {
	for k, h := range f.tasks {
		select {
		case <-h.Done():
		case <-time.After(time.Minute):
			for k, h := range f.tasks {
				if !over(h) {
					f.t.Logf("task %v runs: %+v", k, h.Status())
				} else if h.Err() != nil && !f.retired[k] {
					f.t.Errorf("task %v: %v", k, h.Err())
				}
			}
			f.t.Fatalf("task %v does not end", k)
		}
		if !f.retired[k] {
			require.NoError(f.t, h.Err(), "task %v", k)
		}
	}
}

// drive moves key groups until all goals are reached, or tell ends it.
func (f *fleet) drive(ctx context.Context, asked []rescale.Request, tell func(*rescale.Progress)) error {
	r, err := f.spec.Rescaler(f.t.Context(), f.log, f.id, tasks.Options{Logger: quiet})
	require.NoError(f.t, err)
	return r.Drive(ctx, f.t.Context(), f, asked, nil, tell)
}

// finishStep waits until no key group is on its way.
func (f *fleet) finishStep() {
	r, err := f.spec.Rescaler(f.t.Context(), f.log, f.id, tasks.Options{Logger: quiet})
	require.NoError(f.t, err)
	require.NoError(f.t, r.FinishStep(f.t.Context(), func(*rescale.Progress) {}))
}

const byKey = 2 // the stage of counts

// Key groups of tasks in other processes move, as another process asks. That process dies after each
// plan, and another one continues.
func TestRescaledInOtherProcesses(t *testing.T) {
	for _, c := range []struct {
		protocol string
		disk     bool
	}{{"fused", false}, {"marker", false}, {"fused", true}, {"marker", true}} {
		t.Run(fmt.Sprintf("%s, on disk: %t", c.protocol, c.disk), func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 20_000, 2)
			file := filepath.Join(t.TempDir(), "out")
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
			o := tasks.Options{Protocol: c.protocol}
			var connect func(*link)
			if c.disk { // what is on disk is restored, also if the processes reach each other
				o.State, connect = onDisk(t), func(*link) {}
			}
			f := fleetOf(t, counts(t, file, g), o, connect)
			if c.disk {
				defer func() { require.Zero(t, f.count(observe.RescaleAsking)) }()
			}
			for _, n := range []int{5, 1, 3} {
				asked := []rescale.Request{{Stage: "by-key", Tasks: n, Batch: 1}}
				var last *rescale.Progress
				for drives := 0; last == nil || last.Goal; drives++ {
					ctx, cancel := context.WithCancel(t.Context())
					moved := -1
					err := f.drive(ctx, asked, func(p *rescale.Progress) {
						last = p
						if len(p.Stages) > 0 {
							if moved >= 0 && p.Stages[0].Moved > moved {
								cancel()
							}
							moved = p.Stages[0].Moved
						}
					})
					cancel()
					if err != nil {
						require.ErrorIs(t, err, context.Canceled)
						asked = nil // the goal is in the plan
					}
					require.Less(t, drives, 100)
				}
				f.finishStep()
				stay, members, goal, err := tasks.NewestPlan(t.Context(), f.log, f.id)
				require.NoError(t, err)
				require.Equal(t, n, stay[byKey])
				require.Equal(t, stay, members, "who leaves has left")
				require.False(t, goal)
				require.NoError(t, f.drive(t.Context(), nil, func(p *rescale.Progress) { last = p }))
				require.Equal(t, stay, last.Tasks)
				require.Empty(t, last.String(), "nothing is under way")
				require.Eventually(t, func() bool { return f.executors[1].Load().Layout().Stages[byKey].Tasks == n }, time.Minute, time.Millisecond, "its process knows the plan")
			}
			g.open.Store(true)
			f.end()
			sameRows(t, w.want, lines(t, file))
		})
	}
}

// Of several requests each has an outcome of its own; one that is given up leaves the stage as it is
// when its step is done.
func TestRequestsInOtherProcesses(t *testing.T) {
	w := newWorld(1, 20_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	f := newFleet(t, file, g, "fused", nil)
	var last *rescale.Progress
	tell := func(p *rescale.Progress) { last = p }
	require.NoError(t, f.drive(t.Context(), []rescale.Request{
		{Stage: "out", Tasks: 2}, {Stage: "by-key", Tasks: 4}, {Stage: "nothing", Tasks: 1}, {Stage: "spread", Tasks: 3},
	}, tell))
	require.Len(t, last.Done, 4)
	for _, o := range last.Done {
		switch o.Request {
		case 0:
			require.Contains(t, o.Error, "is a sink")
		case 1:
			require.Equal(t, rescale.Result{Stage: "by-key", From: 2, To: 4, Strategy: "sticky", Mode: rescale.ModeMove, KeyGroups: 8, GroupsMoved: 4, Steps: o.Result.Steps, SettledMS: o.Result.SettledMS}, o.Result)
		case 2:
			require.Contains(t, o.Error, `no stage "nothing"`)
		case 3:
			require.Empty(t, o.Error)
			require.Equal(t, 3, o.Result.To)
		}
	}
	// Given up in the first step to one task.
	ctx, cancel := context.WithCancel(t.Context())
	err := f.drive(ctx, []rescale.Request{{Stage: "by-key", Tasks: 1, Batch: 1}}, func(p *rescale.Progress) {
		if p.Stages[0].Moved > 0 {
			require.Regexp(t, `^rescaling by-key 4 → 1: [1-9] of 6 key groups moved`, p.String())
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	f.finishStep()
	_, _, goal, err := tasks.NewestPlan(t.Context(), f.log, f.id)
	require.NoError(t, err)
	require.True(t, goal, "there is a next step")
	require.NoError(t, f.drive(t.Context(), []rescale.Request{{Stage: "by-key", Cancel: true}}, tell))
	require.False(t, last.Goal)
	require.Len(t, last.Done, 1)
	require.Empty(t, last.Done[0].Error)
	require.Equal(t, last.Done[0].Result.To, last.Tasks[byKey])
	g.open.Store(true)
	f.end()
	sameRows(t, w.want, lines(t, file))
}

// A request that a job's settings do not allow is refused without the job.
func TestCheckRescale(t *testing.T) {
	plan := counts(t, "any", optest.Items(0, []optest.Timed[int64]{optest.At[int64](1, 1)}, []optest.Timed[int64]{}))
	for _, c := range []struct {
		protocol, format string
		r                tasks.Rescale
		want             string
	}{
		{"fused", "", tasks.Rescale{Stage: "by-key", Tasks: 8}, ""},
		{"marker", "", tasks.Rescale{Stage: "spread", Tasks: 1, Strategy: "hash"}, ""},
		{"fused", "", tasks.Rescale{Stage: "by-key", Cancel: true}, ""},
		{"fused", "", tasks.Rescale{Stage: "by-key", Tasks: 9}, "8 key groups: at most 8"},
		{"fused", "", tasks.Rescale{Stage: "keys", Tasks: 2}, ""},
		{"fused", "", tasks.Rescale{Stage: "keys", Tasks: 3}, "stage keys reads 2 partitions: at most 2 tasks"},
		{"fused", "", tasks.Rescale{Stage: "keys", Tasks: 1, Mode: "restart"}, "use another mode"},
		{"fused", "3", tasks.Rescale{Stage: "keys", Tasks: 1}, "stage keys reads a source: the job was described by an older program, of format 3"},
		{"fused", "3", tasks.Rescale{Stage: "by-key", Tasks: 1}, ""},
		{"fused", "", tasks.Rescale{Stage: "nothing", Tasks: 1}, "no stage"},
		{"fused", "", tasks.Rescale{Stage: "by-key", Tasks: 2, Owners: []int{0, 0, 0, 0, 0, 0, 0, 0}}, "task 1 owns no key group"},
		{"txn", "", tasks.Rescale{Stage: "by-key", Tasks: 2}, "use fused or marker"},
		{"unsafe", "", tasks.Rescale{Stage: "by-key", Tasks: 2}, "submit it again with another parallelism"},
		{"fused", "1", tasks.Rescale{Stage: "by-key", Tasks: 2}, "submit it again"},
	} {
		spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 2, Groups: 8, Protocol: c.protocol, Logger: quiet})
		require.NoError(t, err)
		if c.format != "" {
			spec.Format = c.format
		}
		err = spec.CheckRescale(c.r)
		if c.want == "" {
			require.NoError(t, err, "%+v", c.r)
			continue
		}
		require.ErrorContains(t, err, c.want)
	}
}
