package operators

import (
	"bytes"
	"fmt"
	"slices"
)

// What a StateMap does that lives in a Home: its index is a cache. An entry leaves it at
// a commit, when nobody holds a pointer to it, and comes back when it is asked for; what
// has changed since it came is written when it leaves.

// spill implements spillable. What holds timers stays in memory, with them.
func (m *StateMap[K, V]) spill(h Home) {
	if m.restored == nil && m.dropped == nil {
		m.home = h
	}
}

// encoded returns a key's bytes, valid until the next call.
func (m *StateMap[K, V]) encoded(key *K) []byte {
	m.scratch = m.keys.Append(m.scratch[:0], key)
	return m.scratch
}

// fetch brings an entry into memory, nil if there is none.
func (m *StateMap[K, V]) fetch(group int, key *K) *mapEntry[K, V] {
	value, ok := m.home.Get(group, m.encoded(key), m.fetched[:0])
	m.fetched = value
	if !ok {
		return nil
	}
	e := m.index.insert(group, ownKey(m.keys, m.name, key))
	if n, err := m.vals.Decode(bytes.Clone(value), &e.v.val); err != nil || n != len(value) {
		// It was written by this table, and the disk's checksums hold.
		panic(fmt.Sprintf("operators: state %q: value of %d bytes: %v", m.name, len(value), err)) // invariant: a serde reads what it wrote
	}
	e.v.logged, e.v.used = true, true
	e.v.size = int32(len(value))
	m.size += len(value)
	return e
}

// evict brings memory below the limit, with some room to spare: a clock that lets
// entries go that nobody has asked for since it came by last.
func (m *StateMap[K, V]) evict() {
	limit := m.home.Limit()
	if m.Bytes() <= limit {
		m.home.Flush()
		return
	}
	for steps := 2 * m.index.used; steps > 0 && m.Bytes() > limit/8*7; steps-- {
		if m.hand >= m.index.used {
			m.hand = 0
		}
		e := m.index.entry(m.hand)
		m.hand++
		switch {
		case !e.v.logged || e.v.touched || e.v.dead: // free, or a commit will see it
		case e.v.used:
			e.v.used = false
		default:
			if e.v.stale {
				m.write(e)
			}
			m.remove(e)
		}
	}
	m.home.Flush()
}

func (m *StateMap[K, V]) write(e *mapEntry[K, V]) {
	m.fetched = m.vals.Append(m.fetched[:0], &e.v.val)
	m.home.Put(int(e.group), m.encoded(&e.key), m.fetched)
	e.v.stale = false
}

// settle writes all that the home does not have of a group.
func (m *StateMap[K, V]) settle(group int) {
	m.index.each(group, func(e *mapEntry[K, V]) {
		switch {
		case e.v.dead:
			m.home.Delete(group, m.encoded(&e.key))
		case e.v.stale || e.v.touched:
			m.write(e)
		}
	})
	m.home.Flush()
}

func (m *StateMap[K, V]) rangeHome(group int, f func(key *K, v *V) bool) {
	m.settle(group)
	m.home.Range(group, func(key, value []byte) bool {
		var k K
		if _, err := m.keys.Decode(bytes.Clone(key), &k); err != nil {
			panic(fmt.Sprintf("operators: state %q: key: %v", m.name, err)) // invariant: a serde reads what it wrote
		}
		if e := m.index.find(group, &k); e != nil {
			return f(&e.key, &e.v.val)
		}
		var v V
		if _, err := m.vals.Decode(bytes.Clone(value), &v); err != nil {
			panic(fmt.Sprintf("operators: state %q: value: %v", m.name, err)) // invariant: a serde reads what it wrote
		}
		return f(&k, &v)
	})
}

// applyHome replays a change without looking at it: it is on disk in the same form.
func (m *StateMap[K, V]) applyHome(group int, op byte, key, value []byte) error {
	var k K
	if n, err := m.keys.Decode(key, &k); err != nil || n != len(key) {
		return m.badChange(group, "key", n, len(key), err)
	}
	if e := m.index.find(group, &k); e != nil {
		m.remove(e)
	}
	switch op {
	case opDelete:
		m.home.Delete(group, key)
	case opPut:
		m.home.Put(group, key, value)
	default:
		return fmt.Errorf("state %q, key group %d: change log has operation %d", m.name, group, op)
	}
	return nil
}

// countHome counts what was replayed.
func (m *StateMap[K, V]) countHome() {
	m.home.Flush()
	m.n = 0
	for g := range m.index.groups {
		m.n += m.inHome(g)
	}
}

func (m *StateMap[K, V]) inHome(group int) (n int) {
	m.home.Range(group, func(_, _ []byte) bool {
		n++
		return true
	})
	return n
}

func (m *StateMap[K, V]) dropHome(group int) {
	m.settle(group)
	m.n -= m.inHome(group)
	m.dirty = slices.DeleteFunc(m.dirty, func(e *mapEntry[K, V]) bool { return int(e.group) == group })
	m.index.each(group, func(e *mapEntry[K, V]) { m.size -= int(e.v.size) })
	m.index.dropGroup(group)
	m.home.Drop(group)
}
