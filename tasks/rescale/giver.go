package rescale

import (
	"maps"
	"slices"
)

// wantEarly notes the groups that a plan ahead of the task's position takes from it early.
func (t *Task) wantEarly(p *Plan) {
	for i := range p.Moves {
		if m := &p.Moves[i]; m.From == t.index && m.Early {
			for _, g := range m.Groups {
				if s := t.state[g]; s != other && s != pending {
					t.early[g] = p.Number
				}
			}
		}
	}
}

// Clean tells that the task is at a clean point: its position is behind a record, and event time has
// moved to time, which is as far as its input, or Cap, allows. The returned commit is at this
// position; Clean may have another one after it.
func (t *Task) Clean(time int64) []Effect {
	switch {
	case t.outside != nil:
		return t.giveOwed(time)
	case t.Holds():
		return t.releaseDue(time)
	case len(t.early) > 0:
		if r := t.release(t.early); r != nil {
			return []Effect{{Do: Commit, Release: r}}
		}
	}
	return nil
}

// give handles what the plan at the position takes from the task.
func (t *Task) give(p *Plan, watermark, time int64) []Effect {
	for i := range p.Moves {
		m := &p.Moves[i]
		if m.From != t.index {
			continue
		}
		for _, g := range m.Groups {
			if t.state[g] != other { // else it was released early
				t.due[g] = p.Number
			}
			delete(t.early, g)
		}
	}
	t.dueTime, t.leaving = watermark, t.index >= p.Tasks
	return t.releaseDue(time)
}

// releaseDue releases at P what the task has. A task that leaves does so when nothing is left to
// release.
func (t *Task) releaseDue(time int64) []Effect {
	if time < t.dueTime {
		return nil // a receiver that exists has promised dueTime: timers below it are the giver's to fire
	}
	r := t.release(t.due)
	leave := t.leaving && len(t.due) == 0
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

// release gives away those of the groups that the task has, by one marker: all by one plan, since
// the marker does not name what it releases by another one, and the task owns it no longer. It
// returns nil if there are none.
func (t *Task) release(groups map[int]uint64) (r *Release) {
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		n := groups[g]
		if t.state[g] != mine || r != nil && n != r.Plan {
			continue
		}
		if r == nil {
			r = &Release{Plan: n, From: t.index}
		}
		r.Groups = append(r.Groups, g)
		t.set(g, other)
		t.from[g] = never
		delete(groups, g)
	}
	return r
}
