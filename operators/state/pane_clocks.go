//go:build !nokeyed

package state

import (
	"slices"

	"tailrace.dev/tailrace/operators/internal/index"

	"tailrace.dev/tailrace/operators/watermark"
)

// This file has what a PaneTable does if each key has a clock. The clocks are beside the entries of the
// index. An entry then stays while its clock has a timer, with or without panes. Such a table is in
// memory.

// Clocked is the operator of a table whose keys have clocks.
type Clocked[K comparable, A any] interface {
	// RestoreClocks is called when the panes of a key group have been restored from the change log: it
	// makes the entries of the keys that have only a clock, and sets the clocks. along: they come from
	// another task, with the clocks that are beside the entries.
	RestoreClocks(group int, along bool)
	// Restored is then called for each entry of the group, in the order of the encoded keys; and, in no
	// order, for those of a group that comes from another task with its clocks. The entries have no
	// timers.
	Restored(e *PaneEntry[K, A])
	// Dropped is called when a key group has moved away.
	Dropped(group int)
}

// paneClocks is the additional state of a PaneTable whose keys have clocks.
type paneClocks[K comparable, A any] struct {
	index.Column[watermark.Clock]
	shares index.Column[uint8]
	op     Clocked[K, A]
}

// UseClocks gives each key a clock, while the table is empty.
func (m *PaneTable[K, A]) UseClocks(op Clocked[K, A]) {
	n := m.index.Groups()
	m.clocks = &paneClocks[K, A]{index.NewColumn[watermark.Clock](n), index.NewColumn[uint8](n), op}
}

// Clock returns the clock of a key.
func (m *PaneTable[K, A]) Clock(e *PaneEntry[K, A]) *watermark.Clock {
	return m.clocks.Of(e.Group, e.At)
}

// GroupClocks are the clocks of a key group, for several look-ups.
type GroupClocks = index.Values[watermark.Clock]

// GroupClocks returns the clocks of a key group. It does not have those of entries that are added later.
func (m *PaneTable[K, A]) GroupClocks(group int) GroupClocks { return m.clocks.Group(group) }

// ClockIn returns the clock of a key, nil if its entry was added later.
func ClockIn[K comparable, A any](g GroupClocks, e *PaneEntry[K, A]) *watermark.Clock {
	return g.Of(e.At)
}

// Share returns the number of the clock that a key shares with others, for the operator to set. A table
// that does not use it has no memory for it.
func (m *PaneTable[K, A]) Share(e *PaneEntry[K, A]) *uint8 { return m.clocks.shares.Of(e.Group, e.At) }

// Key returns the entry of a key, nil if it has neither panes nor a clock.
func (m *PaneTable[K, A]) Key(group int, key *K) *PaneEntry[K, A] { return m.index.Find(group, key) }

// AddKey adds a key that has no entry.
func (m *PaneTable[K, A]) AddKey(group int, key *K) *PaneEntry[K, A] {
	e := m.index.Insert(group, ownKey(m.keys.keys, m.name, key))
	*m.Clock(e) = watermark.New()
	return e
}

// began gives a key that has got an entry its clock, if keys have clocks.
func (m *PaneTable[K, A]) began(e *PaneEntry[K, A]) {
	if m.clocks != nil {
		*m.Clock(e) = watermark.New()
	}
}

// timed reports whether a key has a clock with a timer.
func (m *PaneTable[K, A]) timed(e *PaneEntry[K, A]) bool {
	return m.clocks != nil && m.Clock(e).Timer != watermark.NoTimer
}

// rehomeClock moves the clock of entry e to n.
func (m *PaneTable[K, A]) rehomeClock(e, n *PaneEntry[K, A]) {
	*m.Clock(n), *m.Clock(e) = *m.Clock(e), watermark.New()
	m.Forget(e) // otherwise it goes with its last pane, behind the commit
}

// detachedClocks are the clocks of a key group that moves away.
type detachedClocks = [][]watermark.Clock

// detach returns the clocks of a key group, and drops what else is known of them.
func (c *paneClocks[K, A]) detach(group int) detachedClocks {
	clocks := c.Detach(group)
	c.shares.Detach(group)
	c.dropped(group)
	return clocks
}

func (c *paneClocks[K, A]) attach(group int, clocks detachedClocks) { c.Attach(group, clocks) }

// dropped tells the operator that a key group has moved away.
func (c *paneClocks[K, A]) dropped(group int) { c.op.Dropped(group) }

// Forget removes a key whose clock has no timer, when its last pane has gone.
func (m *PaneTable[K, A]) Forget(e *PaneEntry[K, A]) {
	if len(e.V.all) == 0 {
		m.index.Remove(e)
	}
}

// Changed returns the pane that ends at end if it has changed since the last Changes, and is alive, or nil.
func (p *Panes[A]) Changed(end int64) *Pane[A] {
	if x := p.At(end); x != nil && x.touched && !x.Dead {
		return x
	}
	return nil
}

// All returns the panes, dead ones included, in no order.
func (p *Panes[A]) All() []Pane[A] { return p.all }

// End returns the end of the pane.
func (p *Pane[A]) End() int64 { return p.end }

// restoredKeys tells the operator of the keys of a group, which have no timers yet.
func (m *PaneTable[K, A]) restoredKeys(group int, sorted bool) {
	var all []*PaneEntry[K, A]
	m.clocks.op.RestoreClocks(group, !sorted)
	if sorted {
		all = sortedEntries(&m.index, group, m.keys.keys, func(*Panes[A]) bool { return true })
	} else {
		m.index.Each(group, func(e *PaneEntry[K, A]) { all = append(all, e) })
	}
	for _, e := range all {
		slices.SortFunc(e.V.all, comparePanes)
		m.Clock(e).Timer = watermark.NoTimer
		m.clocks.op.Restored(e)
	}
}
