package rescale

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

const (
	minTime int64 = -1 << 63
	maxTime int64 = 1<<63 - 1
)

// never is the LSN from which a task processes the items of a key group that it does not own.
const never = ^sharedlog.LSN(0)

// Task decides what one instance of a task owns, and when that changes. The task's goroutine calls
// it; it returns what the goroutine must do, in this order, before it processes anything else. An
// instance whose append fails ends, so Task learns nothing of acknowledgements: the next instance
// starts from what the log has.
type Task struct {
	index int
	// plan is the newest plan acted on, before the one acted on before.
	plan, before uint64
	// state and from are by key group. The items of a group count for the task at and above from.
	state []state
	from  []sharedlog.LSN
	// waiting is the number of groups in a state that waits.
	waiting int
	// source is the move by which a waiting group comes.
	source map[int]source
	// early are the groups to release at the next clean point, with the numbers of their plans.
	early map[int]uint64
	// due are the groups to release at P, and have not been released because the task does not have
	// them itself yet, or because event time has not reached dueTime, the watermark of P. The task
	// is at P, whose plan is acted on, until there are none.
	due     map[int]uint64
	dueTime int64
	// leaving: the task leaves at P, and has not.
	leaving bool
	follows map[int]bool
	// entry is set until a newcomer starts to process its input.
	entry *entry
	// outside is set if the stage reads a source.
	outside *outside
}

// source is where a group comes from.
type source struct {
	plan  uint64
	giver int
	at    sharedlog.LSN // of the plan's record
	// cap is what event time may not pass while the group is pending or missing.
	cap int64
}

type state uint8

const (
	other    state = iota // another task owns the group
	mine                  // the task owns it and has its state
	pending               // a plan below the position gives it to the task, its giver has not released it
	missing               // the task owns it and does not have its state yet
	unplaced              // an earlier instance took it over; from where on it counts is not known again yet
)

func (s state) waits() bool { return s >= pending }

// Effect is something that the task's goroutine must do. Do determines which fields are set.
type Effect struct {
	Do Do
	// Commit: the release that the marker contains, nil if it contains none. Plan and Groups are set.
	Release *Release
	// Commit: the task leaves with this marker, which is its last one.
	Leave bool
	// Follow, Unfollow, Take: the giver.
	From int
	// Follow: where to start reading. Take: the LSN of the release.
	At sharedlog.LSN
	// Take: the groups.
	Groups []int
	// Start, Readback.
	Start *Start
	Back  *Readback
}

// Do is what an Effect asks for.
type Do int

// The kinds of effects.
const (
	// Commit: commit at the task's position now, with Owned and Plan of the Task.
	Commit Do = iota
	// Follow: call Saw for the newest marker below an LSN in the task log of a giver, and for each one
	// above, until Unfollow. The giver may have ended when the plan was on its way.
	Follow
	// Unfollow: the task needs to know no more of a giver.
	Unfollow
	// Take: get the state of groups as of the release, then call Arrived.
	Take
	// Back: read records below Q into the inbox, before the next record is processed.
	Back
	// Enter: a newcomer starts to process its input.
	Enter
	// End: a newcomer ends, because the stage has ended without it. It commits the end of its input.
	End
)

// Start is where a newcomer starts.
type Start struct {
	// Release is the LSN of the release whose Seen and Watermark the newcomer's table of producers
	// begins with.
	Release sharedlog.LSN
	// Position and Low are those of its inbox. Watermark is what it promises first.
	Position, Low sharedlog.LSN
	Watermark     int64
}

// Readback is input of moved groups that was read and not processed when they were released: data
// records in [Low, Until) that count at Until or above. The inbox gets those that it does not have.
type Readback struct {
	Low, Until sharedlog.LSN
	Groups     []int
}

// New returns the part in rescaling of a new instance of task index, of a stage with that many key
// groups. last is the newest marker of the task, nil if there is none. plans are the stage's plans
// in the log below the place where the instance replaced its predecessor, in their order: all that
// the log keeps, and if the task has no marker, those from the one on that has made it a task: it is an error if
// they are trimmed. There may be none if the task has left. Further plans are passed to Told.
func New(index, groups int, last *Marker, plans []Plan) (*Task, []Effect, error) {
	return newTask(index, groups, nil, last, plans)
}

func newTask(index, groups int, of *outside, last *Marker, plans []Plan) (*Task, []Effect, error) {
	t := &Task{
		outside: of,
		index:   index, state: make([]state, groups), from: slices.Repeat([]sharedlog.LSN{never}, groups),
		source: map[int]source{},
		early:  map[int]uint64{}, due: map[int]uint64{}, follows: map[int]bool{},
	}
	if len(plans) == 0 && (last == nil || !last.Left) { // what it has left by may be trimmed
		return nil, nil, fmt.Errorf("task %d: the log has no plan", index)
	}
	for i := range plans {
		if len(plans[i].Owners) != groups {
			return nil, nil, fmt.Errorf("task %d: plan %d has %d key groups, the stage has %d", index, plans[i].Number, len(plans[i].Owners), groups)
		}
	}
	if last == nil && plans[0].Number == 1 && index < plans[0].Tasks {
		last = &Marker{Position: sharedlog.First, Watermark: minTime, Plan: 1}
		for g, owner := range plans[0].Owners {
			if owner == index {
				last.Owned = append(last.Owned, g)
			}
		}
	}
	if last == nil && slices.Contains(plans[len(plans)-1].Owners, index) && !slices.ContainsFunc(plans, func(p Plan) bool { return p.gives(index) }) {
		return nil, nil, fmt.Errorf("task %d has made no marker, and the log has no plan that gives it its key groups: the oldest is plan %d", index, plans[0].Number)
	}
	var effects []Effect
	if last == nil || last.Left {
		t.entry = new(entry)
		if last != nil {
			t.plan = last.Plan
		}
	} else {
		effects = t.resume(last, plans)
	}
	for i := range plans {
		if of != nil && t.entry == nil {
			effects = append(effects, t.Reached(&plans[i], last.Watermark)...)
			continue
		}
		effects = append(effects, t.Told(&plans[i])...)
	}
	return t, effects, nil
}

// resume sets the task to what its newest marker says. A group that the marker does not own is
// pending if the newest move of it at or below the marker's plan gives it to the task (rule newest),
// unless a later plan takes it away again: a plan is made when the one before is done, so the task
// then had it, and has released it early (rule given).
func (t *Task) resume(m *Marker, plans []Plan) (effects []Effect) {
	t.plan = m.Plan
	for _, g := range m.Owned {
		t.state[g], t.from[g] = mine, m.Position
	}
	for g := range t.state {
		for i := len(plans) - 1; i >= 0; i-- {
			p := &plans[i]
			move := p.of(g)
			if move == nil {
				continue
			}
			if p.Number > m.Plan {
				if move.From == t.index {
					break
				}
				continue
			}
			if t.outside != nil && move.From == t.index && m.owns(g) {
				effects = append(effects, t.owe(g, p, move)...)
			}
			if move.To == t.index {
				switch {
				case !m.owns(g):
					effects = append(effects, t.wait(g, pending, p, move, m.Watermark)...)
				case t.outside == nil && p.LSN >= m.Position:
					effects = append(effects, t.wait(g, unplaced, p, move, maxTime)...)
				}
			}
			break
		}
	}
	if t.outside != nil {
		for i := range plans {
			if plans[i].Number <= m.Plan {
				t.leaving = t.index >= plans[i].Tasks
			}
		}
	}
	return effects
}

// set changes the state of a group.
func (t *Task) set(group int, s state) {
	if t.state[group].waits() {
		t.waiting--
	}
	if s.waits() {
		t.waiting++
	}
	t.state[group] = s
}

// wait sets a group to pending or unplaced, and returns what makes the task learn of its release.
func (t *Task) wait(group int, s state, p *Plan, m *Move, most int64) []Effect {
	t.set(group, s)
	t.source[group] = source{p.Number, m.From, p.LSN, most}
	if s == pending {
		t.from[group] = p.LSN + 1 // what is below it, the giver processes
	}
	return t.follow(m.From, p.LSN)
}

func (t *Task) follow(giver int, at sharedlog.LSN) []Effect {
	if t.follows[giver] {
		return nil
	}
	t.follows[giver] = true
	return []Effect{{Do: Follow, From: giver, At: at}}
}

// unfollow returns effects for a giver of which nothing more is needed.
func (t *Task) unfollow(giver int) []Effect {
	if !t.follows[giver] || t.entry != nil && t.entry.needs(giver) {
		return nil
	}
	if t.outside != nil && t.outside.asks(giver) {
		return nil
	}
	for g, s := range t.source {
		if s.giver == giver && (t.state[g] == pending || t.state[g] == unplaced) {
			return nil
		}
	}
	delete(t.follows, giver)
	return []Effect{{Do: Unfollow, From: giver}}
}

// Told passes the record of a plan that the process has read ahead of the task's position. Reached
// follows when the task gets there.
func (t *Task) Told(p *Plan) []Effect {
	if p.Number <= t.plan {
		return nil
	}
	if t.entry != nil {
		return t.enter(p)
	}
	t.wantEarly(p)
	return nil
}

// Reached passes the record of a plan at the task's position: all that counts below it has been
// processed, the input below it allows event time watermark, and event time is there, or as far as
// Cap allows. If the task Holds then, its position stays at the record until it does not; otherwise
// it is behind the record when the effects are carried out.
func (t *Task) Reached(p *Plan, watermark int64) (effects []Effect) {
	if p.Number <= t.plan || t.entry != nil {
		return nil
	}
	if t.outside != nil {
		return t.planned(p, watermark)
	}
	t.before, t.plan = t.plan, p.Number
	most, _ := t.Cap(watermark, false)
	effects = t.give(p, watermark, most) // before it waits for anything: otherwise two tasks could wait for each other
	return append(effects, t.receive(p, watermark)...)
}

// Counts reports whether the task processes the items of a key group in a record that counts at an
// LSN. It is for records of which no group Waits.
func (t *Task) Counts(group int, at sharedlog.LSN) bool {
	return group < len(t.from) && at >= t.from[group]
}

// From returns the LSN at and above which the task processes the items of a key group, the highest
// LSN if it owns the group no longer, or not yet.
func (t *Task) From(group int) sharedlog.LSN { return t.from[group] }

// Blocked reports whether there are groups for which Waits may be true.
func (t *Task) Blocked() bool { return t.waiting > 0 }

// Waiting returns the number of groups for which Waits may be true.
func (t *Task) Waiting() int { return t.waiting }

// Waits reports whether the task must not process a record that counts at an LSN, because it
// contains items of this key group: whether they are its own is not decided, or it does not have
// the group's state yet.
func (t *Task) Waits(group int, at sharedlog.LSN) bool {
	return t.waiting > 0 && group < len(t.from) && t.state[group].waits() && at >= t.from[group]
}

// Pending reports whether the task waits for a release. It then must not process a marker that makes
// held records count, even if it knows of none: of the groups that are pending, it has not read what
// is below P (Readback).
func (t *Task) Pending() bool { return t.waiting > 0 && slices.Contains(t.state, pending) }

// Holds reports whether the task must not process anything above its position: it is at a plan that
// takes groups from it that it does not have itself yet (rule whole), or that have timers to fire.
func (t *Task) Holds() bool { return t.outside == nil && (len(t.due) > 0 || t.leaving) }

// Silent reports whether the task is a newcomer that has not been told where to start: it reads no
// input and appends nothing (a producer that is not registered does not hold event time).
func (t *Task) Silent() bool { return t.entry != nil }

// Cap returns the event time that the task may promise, and whether it may say that it is idle; time
// and idle are what its input allows. While a group is pending, event time does not pass the watermark
// of P (rule cap); while one is missing, it does not reach the group's first timer (rule timers). A
// task whose event time is behind its input's is not idle.
func (t *Task) Cap(time int64, idle bool) (int64, bool) {
	if t.outside != nil && idle {
		time = max(time, t.outside.highest())
	}
	if t.waiting == 0 {
		return time, idle
	}
	if t.outside != nil {
		idle = false
	}
	most := maxTime
	for _, s := range t.source {
		most = min(most, s.cap)
	}
	if time <= most {
		return time, idle
	}
	return most, false
}

// Open reports whether moves to or from the task are under way, as far as it knows: it makes no
// savepoint and does not end.
func (t *Task) Open() bool {
	return t.waiting > 0 || len(t.early) > 0 || len(t.due) > 0 || t.entry != nil && t.entry.plan != nil ||
		t.outside != nil && t.leaving && t.empty()
}

// Plan is what the task's next marker says. An instance that starts while its predecessor Holds
// reaches the plan again.
func (t *Task) Plan() uint64 {
	if t.Holds() {
		return t.before
	}
	return t.plan
}

// Owned appends the groups that the task owns, ascending: what its next marker says.
func (t *Task) Owned(dst []int) []int {
	for g, s := range t.state {
		if s != other && s != pending {
			dst = append(dst, g)
		}
	}
	return dst
}
