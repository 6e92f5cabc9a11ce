package handover

import (
	"context"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/status"
)

// This file has how the parts of key groups come to a task, which meanwhile processes the records whose keys' parts
// it has. Event time stands until the groups are whole (rescale.Task.Cap), so no timer needs what has not come.

// come is what has come of a key group.
type come struct {
	has [exec.Parts + 1]bool
	n   int
}

// lookAhead is how many records behind one that waits are looked at for the parts that they need.
const lookAhead = 64

// inParts reports whether the task takes key groups part by part: not under a protocol whose records count at
// markers, because those of many records would be needed at once.
func (m *mover) inParts() bool {
	return m.e.InParts() && !m.config().Protocol.Capabilities().Flushes
}

// partly returns the fetch by which a key group comes part by part, nil if it does not.
func (m *mover) partly(group int) *fetch {
	for _, a := range m.arrivals {
		if a.fetch != nil && a.fetch.parts && slices.Contains(a.missing, group) {
			return a.fetch
		}
	}
	return nil
}

// onlyParts reports whether all that the task waits for comes part by part. Then records of event time need not
// wait for it.
func (m *mover) onlyParts() bool {
	n := 0
	for _, a := range m.arrivals {
		if a.fetch != nil && a.fetch.parts {
			n += len(a.missing)
		}
	}
	return n == m.core.Waiting()
}

// lacks looks at the sections of a data record for the groups and parts that the task does not have. It adds the
// groups that the record needs as a whole to m.wanted, and to need the parts, by group.
func (m *mover) lacks(e *sharedlog.Entry, need map[int][]int) error {
	h, err := m.sections.Open(e.Data)
	if err != nil {
		return err
	}
	for {
		s, ok := m.sections.Next()
		if !ok {
			return m.sections.Err()
		}
		if !m.core.Waits(s.Group, e.LSN) {
			continue
		}
		f := m.partly(s.Group)
		if f == nil {
			m.wanted = append(m.wanted, s.Group)
			continue
		}
		c := f.come[s.Group]
		lacks := func(part int) {
			if (c == nil || !c.has[part]) && !slices.Contains(need[s.Group], part) {
				need[s.Group] = append(need[s.Group], part)
			}
		}
		lacks(exec.Head)
		if !m.e.PartsOf(int(h.Stream), &s, lacks) {
			m.wanted = append(m.wanted, s.Group)
		}
	}
}

// waitsForParts reports whether a data record waits for groups or parts, and makes these come before others, those
// of the records behind it included.
func (m *mover) waitsForParts(e *sharedlog.Entry) (bool, error) {
	if m.waiting == e.LSN && m.stillWaits() { // they have been asked for
		return true, nil
	}
	again := m.waiting == e.LSN
	m.wanted = m.wanted[:0]
	m.need = map[int][]int{}
	if err := m.lacks(e, m.need); err != nil || len(m.wanted) == 0 && len(m.need) == 0 {
		m.waited()
		return false, err
	}
	if !again {
		m.since = m.config().Clock()
	}
	m.waiting = e.LSN
	groups := slices.Clone(m.wanted)
	m.unasked = slices.DeleteFunc(slices.Clone(groups), func(g int) bool { return m.partly(g) != nil })
	all := map[int][]int{}
	for g, parts := range m.need {
		all[g] = slices.Clone(parts)
	}
	if held := m.e.Held(); len(m.need) > 0 && len(held) > 1 {
		for i := range held[1:min(len(held), lookAhead)] {
			e := &held[1+i]
			if kind, err := envelope.KindOf(e.Data); err != nil || kind != envelope.Data {
				continue
			}
			if err := m.lacks(e, all); err != nil {
				break // it is an error when its turn comes
			}
		}
	}
	m.wanted = groups
	m.demand(groups)
	for g, parts := range all {
		if f := m.partly(g); f != nil {
			f.demand(g, parts)
		}
	}
	return true, nil
}

// waited counts the record that waited, if there is one: it waits no more.
func (m *mover) waited() {
	if m.waiting > 0 {
		m.waiting = 0
		m.e.Moves().Waited(m.config().Clock().Sub(m.since))
	}
}

// stillWaits reports whether something has not come that the record needs which waits; false: look again.
func (m *mover) stillWaits() bool {
	if slices.ContainsFunc(m.unasked, func(g int) bool { return m.partly(g) != nil }) {
		return false // parts of it may do
	}
	for g, parts := range m.need {
		f := m.partly(g)
		if f == nil {
			if m.core.Waits(g, m.waiting) {
				return true // it is restored
			}
			continue // it is whole
		}
		c := f.come[g]
		if slices.ContainsFunc(parts, func(p int) bool { return c == nil || !c.has[p] }) {
			return true
		}
	}
	return slices.ContainsFunc(m.wanted, func(g int) bool { return m.core.Waits(g, m.waiting) })
}

// arrived adds parts of a key group.
func (m *mover) arrived(a *arrival, group int, parts []copies.Part) (whole bool, err error) {
	f := a.fetch
	c := f.come[group]
	if c == nil {
		c = new(come)
		f.come[group] = c
	}
	for i := range parts {
		p := exec.Part{Number: parts[i].Number, Total: parts[i].Total, Items: parts[i].Items}
		if len(f.before) > 0 {
			p.Items, f.before = append(f.before, p.Items...), nil
		}
		if p.Number > exec.Head || c.has[p.Number] || p.Number != exec.Head && !c.has[exec.Head] {
			return false, sharedlog.Errorf(sharedlog.KindCorrupt, "part %d of key group %d comes again, or before the head", p.Number, group)
		}
		if err := m.e.Arrive(group, &p); err != nil {
			return false, err
		}
		c.has[p.Number] = true
		c.n++
		m.e.Reached(observe.RescaleCopied)
	}
	return c.n == len(c.has), nil
}

// again restores the groups of a release of which parts have come and may have changed since: as of a commit that the
// task makes now. The changes since the release are in the groups' change logs.
func (m *mover) again(ctx context.Context, a *arrival, groups []int) error {
	if err := m.e.TakeAgain(ctx, groups, a.at, a.marker.Snapshot > 0); err != nil {
		return err
	}
	return m.has(a, groups, status.Restored)
}
