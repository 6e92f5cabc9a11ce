package state

import "slices"

// Remove removes the i-th value of a key, which has more than i.
func (m *List[K, V]) Remove(group int, key *K, i int) {
	le := m.find(group, key)
	l := &le.V
	at := l.head + i
	seq := l.elems[at].seq
	if m.disk != nil {
		m.disk.shrink(&l.size, 1, len(l.elems)-l.head)
	}
	if k, found := l.isAdded(seq); found {
		l.added = slices.Delete(l.added, k, k+1)
	} else {
		l.removed = append(l.removed, seq)
		m.changes++
	}
	l.elems = slices.Delete(l.elems, at, at+1)
	m.count(int(le.Group), -1)
	m.touch(le)
}
