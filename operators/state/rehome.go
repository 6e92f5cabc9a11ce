package state

import (
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// This file has how tables re-home a part of a key group (exec.Rehome): maps and lists in memory do,
// the others refuse to.

func stays(table, why string) error {
	return fmt.Errorf("state %q: %w: %s", table, exec.ErrStays, why)
}

func inBoth(table string, key []byte) error {
	return fmt.Errorf("state %q: key %q has state in both key groups", table, key)
}

const onDisk = "it is on disk; use a stage without slots, or state in memory"

// Rehome implements exec.StateTable.
func (m *Map[K, V]) Rehome(from, to int, match exec.Match) error {
	if m.home != nil {
		return stays(m.name, onDisk)
	} else if m.whole || m.small {
		return stays(m.name, "the operator needs all keys of a group together; use a stage without slots")
	}
	if m.dropped != nil {
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
	}
	return nil
}

// Rehomed implements exec.StateTable.
func (m *Map[K, V]) Rehomed(from, to int) {
	if m.restored == nil {
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
		return stays(m.name, onDisk)
	}
	for _, e := range sortedEntries(&m.index, from, m.keys, func(l *list[V]) bool { return l.head < len(l.elems) }) {
		key := m.keys.Append(nil, &e.Key)
		if !match(exec.HashKey(key), key) {
			continue
		}
		if m.index.Find(to, &e.Key) != nil {
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

// Rehome implements exec.StateTable.
func (m *PaneTable[K, A]) Rehome(int, int, exec.Match) error {
	return stays(m.name, "the windows of a key close with those of its group; use a stage without slots")
}

// Rehomed implements exec.StateTable.
func (m *PaneTable[K, A]) Rehomed(int, int) {}
