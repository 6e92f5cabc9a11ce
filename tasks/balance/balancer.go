//go:build !nokeyed

package balance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/route/sketch"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

// every is the time between two samples, if the steps are not closer.
const every = time.Second

// Check returns why a request makes no sense.
func (r *Request) Check() error {
	if err := route.CheckShares(r.Shares); err != nil {
		return err
	}
	_, err := r.planner(nil)
	return err
}

// Balancer balances one stage of a job.
type Balancer struct {
	job     Job
	logger  *slog.Logger
	request Request
	plan    route.Planner
	index   int      // of the stage
	streams []string // its inputs
	began   time.Time
	meter   meter

	mu    sync.Mutex
	state State
	since []int64     // items of each task since the newest step, nil: there was one since the newest sample
	known route.Stage // the loads of the newest sample, if there were enough
}

// New returns a balancer of the stage with an index. Check must have accepted the request.
func New(job Job, logger *slog.Logger, index int, r Request) (*Balancer, error) {
	b := &Balancer{
		job: job, logger: logger, request: r, index: index, streams: inputs(job.Layout(), index), began: time.Now(),
		state: State{Request: r, Why: "there is no sample yet"},
	}
	plan, err := r.planner(b.failed)
	if err != nil {
		return nil, err
	}
	var alone sync.Mutex // a rescale may ask while a step is planned
	b.plan = func(s *route.Stage) []int {
		alone.Lock()
		defer alone.Unlock()
		return plan(s)
	}
	return b, nil
}

// failed notes that a step, or what plans one, has failed.
func (b *Balancer) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Error = err.Error()
	b.logger.Warn("key groups were not balanced", "stage", b.request.Stage, "error", err)
}

// String says what has been measured and done. Safe for concurrent use.
func (b *Balancer) String() string {
	st := b.State()
	text := fmt.Sprintf("degree %.2f, extra %.0f %%, %d steps moved %d key groups", st.Degree, 100*st.Extra, st.Switches, st.MovedGroups)
	if st.Slots > 0 {
		text += fmt.Sprintf(", %d of %d slots used, routing epoch %d", st.SlotsUsed, st.Slots, st.Epoch)
	}
	if st.Why != "" {
		text += "; " + st.Why
	}
	if st.Error != "" {
		text += "; error: " + st.Error
	}
	return text
}

// State returns what the balancer has done. Safe for concurrent use.
func (b *Balancer) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.state
	st := &b.job.Layout().Stages[b.index]
	c.Tasks, c.KeyGroups, c.Slots, c.ByTask = st.Tasks, st.Groups, st.Slots, slices.Clone(c.ByTask)
	return c
}

// Run balances the stage until ctx ends, or stop is closed. It ends its step before it stops: where
// nothing else continues it, the stage would keep a goal that is not reached, under which there is no
// other step.
func (b *Balancer) Run(ctx context.Context, stop <-chan struct{}) {
	core := route.NewCore(route.When(b.request.When), b.plan)
	if b.request.byKeys() {
		core.ForKeys()
	}
	b.table() // for those who ask for the state before the first sample
	each := every
	if e := time.Duration(b.request.When.Every) * time.Millisecond; e > 0 {
		each = min(each, e)
	}
	tick := time.NewTicker(each)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-tick.C:
		}
		select {
		case <-stop: // during the step
			return
		default:
		}
		busy := b.job.Busy()
		table := b.table()
		st := b.job.Layout().Stages[b.index]
		s := route.Sample{
			At: time.Since(b.began).Milliseconds(), Owners: slices.Clone(st.Owner), Slots: st.Slots, Tasks: st.Tasks, Busy: busy,
			Items: make([]int64, st.Groups), Table: table,
		}
		if len(b.request.Shares) == st.Tasks {
			s.Shares = b.request.Shares
		}
		all := b.job.Status()
		b.meter.sample(b.streams, all, &s)
		s.Keys, s.Bytes = state(b.request.Stage, s.Owners, all)
		if table != nil {
			s.Fine = sampled(b.streams, all)
		}
		d := core.Next(&s)
		b.learned(core.Load(), s.Keys)
		b.decided(&d, route.Tasks(s.Items, s.Owners, s.Tasks), s.Shares)
		if d.Owners != nil {
			b.step(ctx, &s, &d)
		}
	}
}

// learned notes the loads by which the core plans, nil: it does not know enough.
func (b *Balancer) learned(load, keys []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known.Items, b.known.Keys = load, keys
}

// For returns the owners that the stage is to have with another number of tasks, by the loads of its key groups; nil: they are not
// known, or are not balanced. So a rescale that leaves the owners open does not make uneven what has been made even.
// Safe for concurrent use.
func (b *Balancer) For(tasks int) []int {
	w := b.request.When
	w.Quiet = 0
	if w == (When{}) || b.request.Dispatch == "hash" {
		return nil
	}
	b.mu.Lock()
	s := b.known
	b.mu.Unlock()
	l := b.job.Layout()
	st := &l.Stages[b.index]
	if len(s.Items) != st.Groups || tasks < 1 || tasks > st.Groups-st.Slots {
		return nil
	}
	s.Owners, s.Slots, s.Tasks = slices.Clone(st.Owner), st.Slots, tasks
	if len(b.request.Shares) == tasks {
		s.Shares = b.request.Shares
	}
	owners := b.plan(&s)
	if rescale.Check(rescale.Stage{Owners: s.Owners, Tasks: tasks}, owners) != nil || l.Fits(b.index, owners) != nil {
		return nil // a planner of the user's fails, or one task's commits would have too many tags
	}
	return owners
}

// decided notes a decision, and the items that came for each task since the previous one.
func (b *Balancer) decided(d *route.Decision, by []int64, shares []float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := &b.state
	st.Why, st.Degree, st.Extra, st.Measured = d.Why, d.Degree, d.Extra, d.Measured
	if d.Measured {
		st.degrees += d.Degree
		st.samples++
		st.Mean = st.degrees / float64(st.samples)
	}
	for len(st.ByTask) < len(by) {
		st.ByTask = append(st.ByTask, 0)
	}
	for i, n := range by {
		st.ByTask[i] += n
	}
	if len(b.since) != len(by) { // some of these items went where they went before the step
		b.since = make([]int64, len(by))
		by = nil
	}
	for i, n := range by {
		b.since[i] += n
		st.BecameOf += n
	}
	if st.Became = route.Degree(b.since, shares); b.request.byKeys() {
		st.Became = d.Degree
	}
}

// table returns the routing table of the stage's input, nil if its key groups are to stay whole.
func (b *Balancer) table() *route.Table {
	router, ok := b.job.(Router)
	if !ok {
		return nil
	}
	table, err := router.Table(b.index)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.state.Error = err.Error()
		return nil
	}
	if table != nil {
		b.state.Epoch, b.state.SlotsUsed = table.Epoch, len(table.Places())
	}
	if b.request.whole() {
		return nil
	}
	return table
}

// reroute carries out a decision with another table.
func (b *Balancer) reroute(ctx context.Context, s *route.Sample, d *route.Decision) (*rescale.Result, error) {
	began := time.Now()
	err := b.job.(Router).Reroute(ctx, routing.Reroute{
		Stage: b.request.Stage, Places: d.Places, Owners: d.Owners, Have: s.Owners, Epoch: s.Table.Epoch, Was: append([]route.Place{}, s.Table.Places()...),
	})
	return &rescale.Result{
		Stage: b.request.Stage, From: s.Tasks, To: s.Tasks, KeyGroups: len(d.Owners), GroupsMoved: route.Moved(s.Owners, d.Owners), Strategy: "slots",
		SettledMS: float64(time.Since(began)) / float64(time.Millisecond),
	}, err
}

// step carries out a decision.
func (b *Balancer) step(ctx context.Context, s *route.Sample, d *route.Decision) {
	var r *rescale.Result
	var err error
	if d.Places != nil {
		r, err = b.reroute(ctx, s, d)
	} else {
		r, err = b.job.Rescale(ctx, rescale.Request{Stage: b.request.Stage, Tasks: s.Tasks, Owners: d.Owners, Have: s.Owners, ID: "balance"})
	}
	if ctx.Err() != nil || errors.Is(err, runtime.ErrEnded) || errors.Is(err, rescale.ErrStageEnded) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	st := &b.state
	switch {
	case errors.Is(err, rescale.ErrChanged):
		st.Void++
		st.Why = "the owners have changed meanwhile, or a rescale has not reached its goal"
	case err != nil:
		st.Error = err.Error()
		b.logger.Warn("key groups were not balanced", "stage", b.request.Stage, "error", err)
	default:
		b.since, st.BecameOf = nil, 0
		st.Switches++
		st.MovedGroups += r.GroupsMoved
		st.SettledMS += r.SettledMS
		st.SlowestMS = max(st.SlowestMS, r.SettledMS)
		st.Newest = &Step{*r, d.Degree, d.Planned, d.Placed, d.Back}
		if d.Places != nil {
			st.Tables, st.PartsPlaced, st.PartsBack = st.Tables+1, st.PartsPlaced+d.Placed, st.PartsBack+d.Back
			st.SlotsUsed = len(d.Places)
		}
		b.logger.Debug("balanced", "stage", b.request.Stage, "moved", r.GroupsMoved, "placed", d.Placed, "back", d.Back, "degree", d.Degree, "planned", d.Planned)
	}
}

// sampled returns what the tasks have sampled of some streams.
func sampled(streams []string, all []status.Snapshot) sketch.Sample {
	var of []sketch.Sample
	for i := range all {
		for k := range all[i].Sent {
			if out := &all[i].Sent[k]; out.Keys != nil && slices.Contains(streams, out.Stream) {
				of = append(of, out.Keys.Read())
			}
		}
	}
	return sketch.Sum(of...)
}

// state returns what the tasks of a stage have in their state: the number of keys of each key group, nil if those of one were not
// counted, and the bytes of all.
func state(stage string, owners []int, all []status.Snapshot) (keys []int64, bytes int64) {
	keys = slices.Repeat([]int64{unknown}, len(owners))
	for i := range all {
		t := &all[i]
		if t.Stage != stage {
			continue
		}
		bytes += t.StateBytes
		for g := range min(len(t.Keys), len(owners)) {
			if owners[g] == t.Task {
				keys[g] = t.Keys[g]
			}
		}
	}
	if slices.Contains(keys, unknown) {
		keys = nil
	}
	return keys, bytes
}

// unknown is in a status for keys that were not counted.
const unknown = -1

// meter reads what has come for each key group of a stage: what the tasks before it have appended to its
// inputs. What its own tasks have processed would say, while they are behind, which of them had a
// processor.
type meter struct {
	read map[sender]reading
}

// sender is an output of a task.
type sender struct {
	stage  string
	task   int
	stream string
}

type reading struct {
	instance uint64
	items    []uint64 // by key group
}

// sample sets the items of each group. An instance that has started since the last reading has sent what
// it shows. One that does not answer, because its worker does not, counts when it does. The first sample
// has no items.
func (m *meter) sample(streams []string, all []status.Snapshot, s *route.Sample) {
	first := m.read == nil
	if first {
		m.read = make(map[sender]reading, len(all))
	}
	for i := range all {
		t := &all[i]
		for k := range t.Sent {
			out := &t.Sent[k]
			if !slices.Contains(streams, out.Stream) {
				continue
			}
			from := sender{t.Stage, t.Task, out.Stream}
			if was := m.read[from]; !first {
				was.add(s.Items, t.Instance, out.ByGroup)
			}
			m.read[from] = reading{t.Instance, out.ByGroup}
		}
	}
}

// add adds the items that a sender has sent since a reading to those of each group.
func (was *reading) add(items []int64, instance uint64, sent []uint64) {
	for g := range min(len(sent), len(items)) {
		n := sent[g]
		if was.instance == instance && g < len(was.items) {
			n -= min(was.items[g], n) // an instance that starts shows the number of the one before for a moment
		}
		items[g] += int64(n)
	}
}
