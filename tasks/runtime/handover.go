package runtime

import (
	"context"
	"errors"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
)

// Handover is how key groups move between the tasks of a stage while the job runs. Package handover
// implements it, and can be deleted: without one (Config.Handover) a task refuses a plan that moves
// groups of its stage.
type Handover interface {
	// Mover returns a task's part; nil: its groups do not move.
	Mover(e *Engine) Mover
	// Check returns why a stage cannot have a number of tasks, and what to do instead; nil: it can.
	Check(stage string, tasks int) error
	// Rescale moves key groups of a running job until a goal is reached.
	Rescale(ctx context.Context, j rescale.Tasks, r rescale.Request) (*rescale.Result, error)
	// Drive is Rescale and Reroute for all requests, and Rescale for the goals that the newest plan in the log has; it tells
	// its progress. The end of ctx ends it between two plans; the end of life, at once.
	Drive(ctx, life context.Context, j rescale.Tasks, asked []rescale.Request, tables []routing.Reroute, tell func(*rescale.Progress)) error
	// Switch appends a plan that sets the grain of a stage, when no key group is on its way; ctx and life as Drive's.
	Switch(ctx, life context.Context, s Switch) error
	// Reroute replaces the routing table of streams with slots, and moves key groups to the owners that are wanted.
	Reroute(ctx context.Context, j rescale.Tasks, r routing.Reroute) error
	// Table returns the newest routing table of a stage's input, nil: it has no slots.
	Table(stage int) (*routing.Table, error)
	// FinishStep waits until no key group is on its way, without a next step. It tells of the newest plan, as Drive does.
	FinishStep(ctx context.Context, tell func(*rescale.Progress)) error
	// Follow tells the job's tasks in this process of new plans, until ctx ends.
	Follow(ctx context.Context) error
	// Serve answers another process that asks for key groups which tasks of this one have released.
	Serve(st copies.Stream) error
}

// Mover is the part of one instance of a task in moving key groups. The task's goroutine calls it.
type Mover interface {
	// Begin decides what the instance owns (Engine.Own), given the newest marker below place, nil if
	// there is none, and its LSN. A task that has no groups because it is new in its stage waits
	// here for a plan and for the groups' givers, and starts to process its input (Engine.Enter);
	// entered says that it has, or that the task has ended.
	Begin(ctx context.Context, last *envelope.Marker, at, place sharedlog.LSN) (entered bool, err error)
	// Turn does what is to be done between two records, if the task is between two.
	Turn(ctx context.Context) error
	// Ready returns channels that receive a token when Turn may have something to do; nil: none.
	Ready() (a, b <-chan struct{})
	// Waits reports whether the task must not process a record yet. It is asked only if the mover has
	// said that it may be (Engine.Wait).
	Waits(e *sharedlog.Entry) (bool, error)
	// Reached handles the record of a plan, which the task's input has reached.
	Reached(ctx context.Context, at sharedlog.LSN, p *envelope.Plan) error
	// Cap returns what the task may promise of event time when its input allows time and idle.
	Cap(time int64, idle bool) (int64, bool)
	// Open reports whether moves from or to the task are under way.
	Open() bool
	// Marker completes the marker of a commit.
	Marker(m *envelope.Marker)
	// Close ends what runs beside the task.
	Close() error
}

// ErrNoHandover: the program has been built without package handover.
var ErrNoHandover = errors.New("this program cannot move key groups between tasks")

// mover returns the task's mover, nil if its groups do not move.
func (t *task) mover() Mover {
	if t.cfg.Handover == nil {
		return nil
	}
	return t.cfg.Handover.Mover(&Engine{t})
}

// capped returns what the task may promise of event time when its input allows lowest.
func (t *task) capped(lowest progress.Promise) (time int64, idle bool) {
	if t.moves == nil {
		return lowest.Time, lowest.Idle
	}
	return t.moves.Cap(lowest.Time, lowest.Idle)
}

// open reports whether moves are under way: the task neither ends nor stops for a savepoint.
func (t *task) open() bool { return t.moves != nil && t.moves.Open() }

// waits reports whether the task must not process a record yet.
func (t *task) waits(e *sharedlog.Entry) (bool, error) {
	if !t.in.waits {
		return false, nil
	}
	return t.moves.Waits(e)
}

// plan handles the record of a plan.
func (t *task) plan(ctx context.Context, e *sharedlog.Entry) error {
	if t.moves == nil {
		return ErrNoHandover // it has no tag of plans
	}
	var p envelope.Plan
	if err := p.Parse(e.Data); err != nil {
		return err
	}
	if e.LSN >= t.in.inbox.Position() { // else it is read again, and what came between has counted
		t.setGrain(&p)
	}
	if err := t.moves.Reached(ctx, e.LSN, &p); err != nil || t.promise.Ended {
		return err
	}
	return t.advance(ctx)
}

// Own sets what the task owns: its key groups, ascending, and from where on it processes the items
// of each group of the stage. An input that has started gets the tags of the groups that are new.
func (e *Engine) Own(owned []int, from func(group int) sharedlog.LSN) error {
	t := e.t
	more := false
	for g := range t.from {
		at := from(g)
		more = more || t.from[g] == never && at != never
		t.from[g] = at
	}
	t.owned = slices.Clone(owned)
	t.status.Owned.Store(int64(len(owned)))
	if !more || t.in.reader == nil {
		return nil
	}
	return t.reread(t.in.next)
}

// Routes returns the task's part in routing, nil if no table concerns it.
func (e *Engine) Routes() *routing.Task { return e.t.out.routes }

// Wait sets whether Mover.Waits is asked for each record.
func (e *Engine) Wait(may bool) { e.t.in.waits = may }

// Entry is where a task starts that is new in its stage.
type Entry struct {
	// Marker is the release of the giver that was furthest behind, as which the task continues.
	Marker *envelope.Marker
	// Position and Low are those of the task's inbox.
	Position, Low sharedlog.LSN
	// Watermark is what the task promises first; Clock is what wall-clock timers have fired up to.
	Watermark, Clock int64
}

// Enter starts the input of a task that is new in its stage. Its first commit must follow.
func (e *Engine) Enter(ctx context.Context, n *Entry) error {
	t := e.t
	t.asked.enter = false // the log has the plan that names it
	partitions := t.owned
	if t.spec.Partitions > 0 {
		partitions = nil // Receive opens them, at their positions
	} else {
		t.status.Position.Store(uint64(n.Position))
	}
	if err := errors.Join(t.chain.Open(partitions), t.grainAt(ctx, n.Position)); err != nil {
		return err
	}
	t.promise = progress.Promise{Time: n.Watermark}
	t.status.Watermark.Store(n.Watermark)
	if n.Marker != nil {
		t.in.table.Restore(n.Marker.Seen, n.Marker.Watermark)
	}
	t.restoreClock(n.Clock)
	t.in.inbox = t.cfg.Protocol.NewInbox(t.in.table, n.Position, n.Low)
	t.in.inbox.Limit(t.cfg.HeldMemory)
	return t.ready(n.Low)
}

// Newcomer reports whether the process that appends plans has started the task because the next plan
// is to give it key groups.
func (e *Engine) Newcomer() bool { return e.t.asked.enter }

// Low returns the LSN from which the task's successor would read.
func (e *Engine) Low() sharedlog.LSN { return e.t.in.inbox.Low() }

// Reread reads the input again from an LSN, as a restart does; what has counted does not count
// again.
func (e *Engine) Reread(low sharedlog.LSN) error {
	t := e.t
	t.in.inbox = t.cfg.Protocol.NewInbox(t.in.table, t.in.inbox.Position(), min(low, t.in.inbox.Low()))
	t.in.inbox.Limit(t.cfg.HeldMemory)
	return t.reread(t.in.inbox.Low())
}

// Fresh reports whether a marker is new to the task.
func (e *Engine) Fresh(m *envelope.Marker) bool {
	return m.Commit > e.t.in.table.Commit(m.Stage, m.Task)
}

// HoldsFor reports whether the task holds records that may count at a marker.
func (e *Engine) HoldsFor(m *envelope.Marker) bool {
	b, ok := e.t.in.inbox.(interface{ Holds(stage, task uint32) bool })
	return !ok || b.Holds(m.Stage, m.Task)
}

// Position returns the position of the task's inbox.
func (e *Engine) Position() sharedlog.LSN { return e.t.in.inbox.Position() }

// Passed moves the position behind a record.
func (e *Engine) Passed(at sharedlog.LSN) { e.t.done(at) }

// Watermark returns how far the input allows event time to move, Time how far it has.
func (e *Engine) Watermark() int64 { return e.t.in.table.Watermark() }

// Time returns the event time that the task has reached.
func (e *Engine) Time() int64 { return e.t.promise.Time }

// Clean reports whether the task is at a clean point: its position is behind a record, and event
// time is as far as its input, or Mover.Cap, allows.
func (e *Engine) Clean() bool { return e.t.clean() }

// Release makes a commit that gives key groups away, which the task owns no longer, and detaches
// their state, which it returns: those groups of which all is in memory. It is theirs as of the
// commit, which may yet fail. The change logs of the groups have the commit, too: what was appended
// before, and never committed, is known to be void.
func (e *Engine) Release(ctx context.Context, groups []int) (exec.GroupState, error) {
	t := e.t
	t.out.decided = append(t.out.decided, groups...)
	if err := e.Commit(ctx); err != nil {
		return nil, err
	}
	if t.spec.Partitions > 0 {
		if err := t.chain.Give(groups); err != nil {
			return nil, err
		}
	}
	state := exec.Detach(t.tables, groups)
	t.unfollow(groups)
	if t.lead != nil && t.promise.Ended {
		t.lead.Left(t.stage, t.index)
	}
	t.chain.Stand(exec.Bounds{Time: t.promise.Time})
	return state, nil
}

// Attach takes over the state of key groups that another task of this process has released.
func (e *Engine) Attach(s exec.GroupState) error {
	if err := exec.Attach(e.t.tables, s); err != nil {
		return err
	}
	e.t.chain.Stand(exec.Bounds{Time: e.t.promise.Time})
	return nil
}

// Take restores the state of key groups of another task as of its release at an LSN, from the store
// and the change logs.
func (e *Engine) Take(ctx context.Context, groups []int, at sharedlog.LSN, named bool) error {
	t := e.t
	if t.keepsState() {
		if t.cfg.Checkpoints != nil {
			// The LSN is a token for the store; see start.
			if err := checkpoint.Durable(ctx, t.cfg.Log, at+1); err != nil {
				return err
			}
		}
		from, err := t.load(ctx, groups, at, never, named) // the giver may have made snapshots after its release
		if err != nil {
			return err
		}
		if err := t.replay(ctx, groups, from, at+1); err != nil {
			return err
		}
	}
	return e.Restored(groups)
}

// ApplyCopy applies items of a key group that comes from a task of another process, and returns how many
// they are. Restored follows the last of them.
func (e *Engine) ApplyCopy(group int, items []byte) (n int, err error) {
	return e.t.applyItems(group, items)
}

// InParts reports whether the task can process items of a key group of which not all has come.
func (e *Engine) InParts() bool { return len(e.t.tables) > 0 && e.t.chain.InParts() }

// PartsOf calls f with the part (exec.Part) of each item of a section of a stream; ok is false if they are not known.
func (e *Engine) PartsOf(stream int, s *envelope.Section, f func(part int)) (ok bool) {
	t := e.t
	if stream >= len(t.input) || t.input[stream] < 0 {
		return false
	}
	own, groups := true, t.hashed()
	in := exec.In{Input: t.input[stream], Group: s.Group, Items: s.Items}
	ok = t.chain.Keys(&in, s.Data, func(hash uint64) {
		own = own && exec.GroupOf(hash, groups) == s.Group
		f(exec.SubGroupOf(hash, groups, exec.Parts))
	})
	return ok && own
}

// Held returns what has been read of the input and not been processed.
func (e *Engine) Held() []sharedlog.Entry { return e.t.in.rest }

// Arrive adds a part of a key group that comes from a task of another process. Whole is called when the task has all
// parts of a group.
func (e *Engine) Arrive(group int, p *exec.Part) error {
	t := e.t
	if err := exec.Arrive(t.tables, group, t.hashed(), p); err != nil {
		return err
	}
	if p.Number == exec.Head {
		e.Whole()
	}
	return nil
}

// Whole makes the operators compute anew what they derive from the state of all groups.
func (e *Engine) Whole() { e.t.chain.Stand(exec.Bounds{Time: e.t.promise.Time}) }

// TakeAgain is Take for groups of which the task has parts, which may have changed: it commits, drops them, and restores
// them as of this commit.
func (e *Engine) TakeAgain(ctx context.Context, groups []int, at sharedlog.LSN, named bool) error {
	t := e.t
	if err := e.Commit(ctx); err != nil {
		return err
	}
	until := at
	e.Landed(func(at sharedlog.LSN) { until = at })
	if err := e.Acknowledged(ctx); err != nil {
		return err
	}
	if t.cfg.Checkpoints != nil {
		if err := checkpoint.Durable(ctx, t.cfg.Log, at+1); err != nil { // see Take
			return err
		}
	}
	for _, g := range groups {
		e.Drop(g)
	}
	from, err := t.load(ctx, groups, at, never, named)
	if err != nil {
		return err
	}
	if err := t.replay(ctx, groups, from, until+1); err != nil {
		return err
	}
	return e.Restored(groups)
}

// Restored is called when the state of key groups of other tasks is complete.
func (e *Engine) Restored(groups []int) error {
	t := e.t
	for _, table := range t.tables {
		if err := table.Restored(groups); err != nil {
			return err
		}
	}
	t.chain.Stand(exec.Bounds{Time: t.promise.Time})
	return nil
}

// Read is called when the task has the whole state of key groups of other tasks: a source reads from these partitions.
func (e *Engine) Read(groups []int) { e.t.chain.Read(groups) }

// Drop removes the state of a key group.
func (e *Engine) Drop(group int) {
	for _, table := range e.t.tables {
		table.Detach(group)
	}
}
