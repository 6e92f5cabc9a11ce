package state

import (
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// This file has how tables re-home a part of a key group (exec.Rehome), except where an operator says that its
// state Stays. One that uses a Home brings the part into memory first (rehome_home.go), where the changes that the
// commit logs are in any case.

func stays(table, why string) error {
	return fmt.Errorf("state %q: %w: %s", table, exec.ErrStays, why)
}

func inBoth(table string, key []byte) error {
	return fmt.Errorf("state %q: key %q has state in both key groups", table, key)
}

// Stays says that no part of a key group can be re-homed: why, and what to do.
func (m *Map[K, V]) Stays(why string) { m.stays = why }

// Shared says that the entries belong to whole key groups. When a part of one is re-homed, f gives the other group what
// its keys share.
func (m *Map[K, V]) Shared(f func(from, to int)) { m.shared = f }

// Rehome implements exec.StateTable.
func (m *Map[K, V]) Rehome(from, to int, match exec.Match) error {
	switch {
	case m.stays != "":
		return stays(m.name, m.stays)
	case m.shared != nil:
		m.shared(from, to)
		return nil
	case m.home != nil:
		if err := m.bringPart(from, match); err != nil {
			return err
		}
	case m.dropped != nil:
		m.dropped(from)
		m.dropped(to)
	}
	for _, e := range m.sorted(from) {
		key, ok := streamKey(m.keys, m.keys.Append(nil, &e.Key))
		if !ok {
			return fmt.Errorf("state %q: key of an entry: %w", m.name, serde.ErrMalformed)
		}
		if !match(exec.HashKey(key), key) {
			continue
		}
		n, created := m.upsert(to, &e.Key)
		if !created {
			return inBoth(m.name, key)
		}
		n.V.val = e.V.val
		if m.ends != nil {
			end := *m.ends.Of(e.Group, e.At)
			*m.ends.Of(n.Group, n.At) = end
		}
		m.count(from, -1)
		e.V.val, e.V.dead = *new(V), true
		m.touch(e)
		if m.home != nil && m.pace != nil {
			m.pace.moved(from, to, &n.Key)
		}
	}
	return nil
}

// Rehomed implements exec.StateTable.
func (m *Map[K, V]) Rehomed(from, to int) {
	if m.restored == nil || m.home != nil {
		return
	}
	for _, g := range []int{from, to} {
		for _, e := range m.sorted(g) {
			m.restored(g, &e.Key, &e.V.val)
		}
	}
}

// Rehome implements exec.StateTable. The values keep their numbers, which other tables may have.
func (m *List[K, V]) Rehome(from, to int, match exec.Match) error {
	if m.disk != nil {
		m.bringPart(from, match)
	}
	for _, e := range sortedEntries(&m.index, from, m.keys, func(l *list[V]) bool { return l.head < len(l.elems) }) {
		key := m.keys.Append(nil, &e.Key)
		if !match(exec.HashKey(key), key) {
			continue
		}
		if m.find(to, &e.Key) != nil {
			return inBoth(m.name, key)
		}
		n := m.insert(to, &e.Key)
		l := &n.V
		l.elems = append(l.elems, e.V.elems[e.V.head:]...)
		for i := range l.elems {
			l.added = append(l.added, listPos{l.elems[i].seq, l.elems[i].Time})
		}
		slices.SortFunc(l.added, func(a, b listPos) int { return cmp.Compare(a.seq, b.seq) })
		l.next = e.V.next
		m.changes += len(l.elems)
		m.count(to, len(l.elems))
		m.touch(n)
		m.dropFront(e, len(l.elems))
	}
	return nil
}

// Rehomed implements exec.StateTable.
func (m *List[K, V]) Rehomed(int, int) {}

// Rehome implements exec.StateTable. An entry moves with its clock, also one without panes.
func (m *PaneTable[K, A]) Rehome(from, to int, match exec.Match) error {
	if m.disk != nil {
		m.bringPart(from, to, match)
	}
	for _, g := range []int{from, to} {
		if m.clocks != nil {
			m.clocks.dropped(g)
		} else {
			m.clock.Dropped(g)
		}
	}
	for _, e := range sortedEntries(&m.index, from, m.keys.keys, func(*Panes[A]) bool { return true }) {
		key := m.keys.keys.Append(nil, &e.Key)
		if !m.open(e) || !match(exec.HashKey(key), key) {
			continue
		}
		n := m.index.Find(to, &e.Key)
		if n == nil {
			n = m.index.Insert(to, ownKey(m.keys.keys, m.name, &e.Key))
		} else if m.open(n) {
			return inBoth(m.name, key)
		}
		m.rehomePanes(e, n)
		if m.clocks != nil {
			m.rehomeClock(e, n)
		}
	}
	return nil
}

// open reports whether a key has a pane, or a clock with a timer.
func (m *PaneTable[K, A]) open(e *PaneEntry[K, A]) bool {
	return m.timed(e) || slices.ContainsFunc(e.V.all, func(p Pane[A]) bool { return !p.Dead })
}

// rehomePanes moves the panes of an entry, in the order of their ends.
func (m *PaneTable[K, A]) rehomePanes(e, n *PaneEntry[K, A]) {
	slices.SortFunc(e.V.all, comparePanes)
	for i := range e.V.all {
		p := &e.V.all[i]
		if p.Dead {
			continue
		}
		moved, _ := m.UpsertPane(n, p.end)
		moved.Acc, p.Acc, p.Dead = p.Acc, *new(A), true
		m.count(int(e.Group), p.end, -1)
		if !p.touched {
			p.touched = true
			m.dirty = append(m.dirty, dirtyPane[K, A]{e, p.end})
		}
		if m.disk != nil {
			m.left(e, n, moved)
		}
	}
}

// Rehomed implements exec.StateTable.
func (m *PaneTable[K, A]) Rehomed(from, to int) {
	if m.disk != nil {
		return
	}
	for _, g := range []int{from, to} {
		if m.clocks != nil {
			m.restoredKeys(g, false)
			continue
		}
		for _, e := range sortedEntries(&m.index, g, m.keys.keys, func(*Panes[A]) bool { return true }) {
			for i := range e.V.all {
				if p := &e.V.all[i]; !p.Dead {
					m.clock.Restored(g, e.Key, p.end)
				}
			}
		}
	}
}
