package rescale

import (
	"maps"
	"slices"
)

// The key groups of a stage that reads a source are its partitions. A task reads them from outside, so
// no record of the log is the place at which it is at P, and the tasks of the stage are at different event
// times there. What is different from other stages:
//
//   - A task acts on a plan as soon as it knows of it (Reached), and continues to read what it owns.
//   - A newcomer has promised nothing: its givers release its partitions at once.
//   - A receiver that exists has promised an event time. It promises no more (Cap), and says so by a
//     marker that has the plan: its ceiling. The giver follows the receiver's task log, reads the ceiling
//     there, and releases the partitions when its own event time has reached it, so none of their
//     items, and no timer of their state, is late at the receiver.
//   - A receiver that waits is not idle, and no marker that says it is is a ceiling: consumers would let event
//     time pass it, and with the giver's next marker pass what it is about to read.
//   - A giver of which all partitions are idle advances its event time to the ceiling.
//   - A receiver that has ended before it knew of the plan gets nothing: the giver keeps the partitions. A task
//     that has read its partitions to the end is about to end, and acts on no plan: its ceiling would be the
//     end of time, and an idle giver would advance to it.
//
// Tasks that exchange partitions do not wait for each other: of all ceilings one is the lowest, and a
// task that has promised more releases at once.

// outside is the part of a Task of a stage that reads a source.
type outside struct {
	// to is, by partition that is due, the receiver; -1: a newcomer.
	to map[int]int
	// ceilings is, by receiver, the event time that it has promised.
	ceilings map[int]int64
}

// NewSource is New for a stage that reads a source.
func NewSource(index, partitions int, last *Marker, plans []Plan) (*Task, []Effect, error) {
	return newTask(index, partitions, &outside{to: map[int]int{}, ceilings: map[int]int64{}}, last, plans)
}

// asks reports whether the ceiling of a receiver is wanted and not known.
func (o *outside) asks(receiver int) bool {
	if _, known := o.ceilings[receiver]; known {
		return false
	}
	for _, to := range o.to {
		if to == receiver {
			return true
		}
	}
	return false
}

// highest returns the highest ceiling of those that wait for partitions.
func (o *outside) highest() int64 {
	highest := minTime
	for _, to := range o.to {
		if h, known := o.ceilings[to]; known {
			highest = max(highest, h)
		}
	}
	return highest
}

// planned is Reached of a task that is at an event time.
func (t *Task) planned(p *Plan, time int64) (effects []Effect) {
	if time == maxTime {
		return nil
	}
	if t.index < p.Tasks && !slices.ContainsFunc(p.Moves, func(m Move) bool { return m.From == t.index || m.To == t.index }) {
		return nil // its markers stay readable by programs that do not move partitions
	}
	t.plan = p.Number
	clear(t.outside.ceilings)
	for i := range p.Moves {
		m := &p.Moves[i]
		for _, g := range m.Groups {
			if m.From == t.index && t.state[g] != other {
				effects = append(effects, t.owe(g, p, m)...)
			}
		}
	}
	t.leaving = t.index >= p.Tasks
	before := t.waiting
	effects = append(effects, t.receive(p, time)...)
	if t.waiting > before {
		effects = append([]Effect{{Do: Commit}}, effects...) // the ceiling
	}
	return effects
}

// owe makes a partition due for its receiver.
func (t *Task) owe(partition int, p *Plan, m *Move) []Effect {
	t.due[partition] = p.Number
	if t.outside.to[partition] = m.To; m.Early {
		t.outside.to[partition] = -1
		return nil
	}
	return t.follow(m.To, p.LSN)
}

// sawReceiver handles a marker of a task that may be a receiver.
func (t *Task) sawReceiver(task int, m *Marker) {
	o := t.outside
	for _, g := range slices.Sorted(maps.Keys(t.due)) {
		switch n := t.due[g]; {
		case o.to[g] != task:
		case m.Plan >= n && !m.Ended && !m.Idle:
			o.ceilings[task] = m.Watermark
		case m.Plan < n && m.Ended && !m.Left:
			delete(t.due, g)
			delete(o.to, g)
		}
	}
}

// giveOwed releases the partitions whose receivers can take them at the task's event time.
func (t *Task) giveOwed(time int64) []Effect {
	ready := map[int]uint64{}
	for g, n := range t.due {
		to := t.outside.to[g]
		ceiling, known := t.outside.ceilings[to]
		if to < 0 || known && time >= ceiling {
			ready[g] = n
		}
	}
	r := t.release(ready)
	if r != nil {
		for _, g := range r.Groups {
			delete(t.due, g)
			delete(t.outside.to, g)
		}
	}
	leave := t.leaving && t.empty()
	switch {
	case leave:
		t.leaving = false
		if r == nil {
			r = &Release{Plan: t.plan, From: t.index}
		}
	case r == nil:
		return nil
	}
	return []Effect{{Do: Commit, Release: r, Leave: leave}}
}

// empty reports whether the task owns no partition, and waits for none.
func (t *Task) empty() bool {
	return !slices.ContainsFunc(t.state, func(s state) bool { return s != other })
}
