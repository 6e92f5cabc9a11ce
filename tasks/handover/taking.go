package handover

import (
	"context"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/status"
)

// arrival is what a task takes over by one release: key groups that it owns from its next marker on.
type arrival struct {
	at      sharedlog.LSN // of the release
	giver   int
	marker  *envelope.Marker
	missing []int  // the groups whose state it does not have yet, ascending
	fetch   *fetch // gets them from the process of the giver; nil: nothing does
	// restores: the process of the giver has been asked, and has not sent all of them.
	restores bool
	copy     *warmCopy // asks for the standby's copies; nil: nothing does
	// cold: the standby of the giver has been asked, or there is none.
	cold  bool
	whole chan struct{} // closed when there are none; snapshots of the groups wait for it
}

// plan keeps a plan for as long as its key groups may be on their way, and returns the part of it that
// concerns the stage.
func (m *mover) plan(p rescale.Plan) rescale.Plan {
	for n := range m.plans {
		if n+1 < p.Number {
			delete(m.plans, n)
		}
	}
	m.plans[p.Number] = p
	return p
}

// mode returns the mode of a plan; a name that this program does not know has the default.
func (m *mover) mode(plan uint64) *rescale.Mode {
	p := m.plans[plan]
	mode, err := rescale.ModeOf(p.Mode)
	if err != nil {
		return rescale.Modes[0]
	}
	return mode
}

// arrives adds what the commit takes over that is about to be made.
func (m *mover) arrives(take *rescale.Effect) *arrival {
	a := &arrival{at: take.At, giver: take.From, marker: m.releases[take.At], missing: slices.Sorted(slices.Values(take.Groups)), whole: make(chan struct{})}
	m.arrivals = append(m.arrivals, a)
	return a
}

// next returns the key groups to take now, and their release, nil if there are none: as its mode says, from
// the groups of that plan that are missing and are not being fetched.
func (m *mover) next() (a *arrival, groups []int) {
	if len(m.arrivals) == 0 {
		return nil, nil
	}
	plan := m.arrivals[0].marker.Released.Plan
	var missing []int
	for _, a := range m.arrivals {
		if a.marker.Released.Plan == plan && a.fetch == nil && a.copy == nil {
			missing = append(missing, a.missing...)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	slices.Sort(missing)
	mode := m.mode(plan)
	if first := m.h.restarts.Load(); mode.Restarts && (first == 0 || plan < first) {
		return m.arrivals[0], m.arrivals[0].missing // the process that would have restarted the tasks has ended
	}
	wanted := mode.Next(missing)
	for _, a := range m.arrivals {
		groups = nil
		for _, g := range a.missing {
			if a.marker.Released.Plan == plan && a.fetch == nil && a.copy == nil && slices.Contains(wanted, g) {
				groups = append(groups, g)
			}
		}
		if len(groups) > 0 {
			return a, groups
		}
	}
	return nil, nil
}

// take takes over the state of the key groups that are next, and reports whether there were any: from
// the giver, if it is a task of this process, from a standby of the giver in this process, from the giver's
// process, if it serves it, otherwise from the store and the change logs. It waits for no other process but
// the last two.
func (m *mover) take(ctx context.Context) (bool, error) {
	if did, err := m.fetched(ctx); did || err != nil {
		return did, err
	}
	if did, err := m.copied(); did || err != nil {
		return did, err
	}
	a, groups := m.next()
	if a == nil {
		return false, nil
	}
	m.e.Reached(observe.RescaleTaking)
	began := m.config().Clock()
	by := status.Given
	state, err := m.h.states.take(ctx, m.e.Stopping(), nameOf(a.marker), groups)
	switch {
	case err != nil:
	case state != nil:
		err = m.e.Attach(state)
	case m.copies(ctx, a, groups):
		return true, nil
	case m.fetches(a):
		m.ask(ctx, a)
		return true, nil
	default:
		by = status.Restored
		err = m.e.Take(ctx, groups, a.at, a.marker.Snapshot > 0)
	}
	if err != nil {
		return false, fmt.Errorf("take over key groups %v of task %d: %w", groups, a.giver, err)
	}
	m.e.Moves().Took(m.config().Clock().Sub(began))
	return true, m.has(a, groups, by)
}

// has is called when the task has the state of some key groups of a release, and says how it came.
func (m *mover) has(a *arrival, groups []int, by status.Way) error {
	m.e.Moves().Came(by, len(groups))
	m.core.Arrived(groups)
	m.e.Read(groups)
	a.missing = slices.DeleteFunc(a.missing, func(g int) bool { return slices.Contains(groups, g) })
	if len(a.missing) == 0 {
		if a.fetch != nil {
			a.fetch.close()
		}
		close(a.whole)
		m.arrivals = slices.DeleteFunc(m.arrivals, func(of *arrival) bool { return of == a })
	}
	m.e.Reached(observe.RescaleTaken)
	return m.own()
}

// takes reports whether the task is to take more, without waiting for anything.
func (m *mover) takes() bool {
	_, groups := m.next()
	return len(groups) > 0
}

// always has a token.
var always = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
