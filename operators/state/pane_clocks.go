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

// Forget removes a key whose clock has no timer, when its last pane has gone.
func (m *PaneTable[K, A]) Forget(e *PaneEntry[K, A]) {
	if len(e.V.all) == 0 {
		m.index.Remove(e)
	}
}

// UpsertPane is Upsert for a key that has an entry.
func (m *PaneTable[K, A]) UpsertPane(e *PaneEntry[K, A], end int64) (p *Pane[A], created bool) {
	p = e.V.At(end)
	switch {
	case p == nil:
		p, created = m.add(e, end), true
		m.count(int(e.Group), end, 1)
	case p.Dead:
		var zero A
		p.Acc, p.Dead, created = zero, false, true
		m.count(int(e.Group), end, 1)
	}
	if !p.touched {
		p.touched = true
		m.dirty = append(m.dirty, dirtyPane[K, A]{e, end})
	}
	return p, created
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
