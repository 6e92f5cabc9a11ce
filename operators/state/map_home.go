package state

import (
	"bytes"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// This file implements a Map that uses a Home. The index is then a cache. Entries are evicted at
// commits, when no operator has a pointer to one, and are read again on demand. An entry that has
// changed is written to the Home when it is evicted.

// rows are the methods of a Home that a Map needs.
type rows interface {
	Get(group int, key, dst []byte) (value []byte, ok bool)
	Put(group int, key, value []byte)
	Delete(group int, key []byte)
	Flush()
	Range(group int, from, to []byte, f func(key, value []byte) bool)
	Drop(group int)
	Limit() int
}

// pacer keeps what is derived from a table consistent with which of its entries are in memory.
type pacer[K any] interface {
	// spill returns the home of a table, and its encoding of keys.
	spill(h exec.Home) (rows, serde.Serde[K])
	// restored is called when the home has all entries of some key groups. It counts them.
	restored(groups []int)
	// sweep is called before each commit, to delete dead entries by ranges.
	sweep()
	// far reports that a key will not be read soon.
	far(key *K) bool
	// moved is called for an entry that was re-homed, with the table's own copy of the key in the group to.
	moved(from, to int, own *K)
	// trim reduces the derived data below the limit and returns its size in bytes.
	trim(limit int) int
}

// Spill makes the table use a Home, while it is empty.
func (m *Map[K, V]) Spill(h exec.Home) {
	switch {
	case m.small:
		return
	case m.pace != nil:
		m.home, m.homeKeys = m.pace.spill(h)
	default:
		m.home, m.homeKeys = h, m.keys
	}
}

// encoded returns a key's bytes in the home, valid until the next call.
func (m *Map[K, V]) encoded(key *K) []byte {
	m.scratch = m.homeKeys.Append(m.scratch[:0], key)
	return m.scratch
}

// fetch reads an entry into memory, nil if there is none.
func (m *Map[K, V]) fetch(group int, key *K) *mapEntry[K, V] {
	value, ok := m.home.Get(group, m.encoded(key), m.fetched[:0])
	m.fetched = value
	if !ok {
		return nil
	}
	e := m.bring(group, key, value)
	e.V.used = true
	return e
}

// bring decodes the home's bytes of an entry into memory.
func (m *Map[K, V]) bring(group int, key *K, value []byte) *mapEntry[K, V] {
	e := m.index.Insert(group, ownKey(m.keys, m.name, key))
	if n, err := m.decodeValue(bytes.Clone(value), e); err != nil || n != len(value) {
		// This table wrote it, and the disk's checksums hold.
		panic(fmt.Sprintf("operators: state %q: value of %d bytes: %v", m.name, len(value), err)) // invariant: a serde reads what it wrote
	}
	e.V.logged = true
	m.measure(e, len(value))
	return e
}

// evict reduces memory some way below the limit: it removes entries that were not read since the
// clock hand last passed them.
func (m *Map[K, V]) evict() {
	if m.index.Size() == 0 { // it needs no share of the memory
		m.home.Flush()
		return
	}
	limit := m.home.Limit()
	if m.pace != nil {
		limit -= m.pace.trim(limit / 2)
	}
	if m.Bytes() <= limit {
		m.home.Flush()
		return
	}
	m.index.Sweep(&m.hand, func() bool { return m.Bytes() > limit/8*7 }, func(e *mapEntry[K, V]) {
		switch {
		case !e.V.logged || e.V.touched || e.V.dead: // free, or the next commit needs it
		case e.V.used:
			e.V.used = false
		default:
			if e.V.stale {
				m.write(e)
			}
			m.remove(e)
		}
	})
	m.home.Flush()
}

func (m *Map[K, V]) write(e *mapEntry[K, V]) {
	m.fetched = m.appendValue(m.fetched[:0], e)
	m.home.Put(int(e.Group), m.encoded(&e.Key), m.fetched)
	e.V.stale = false
}

// writeBack writes to the home what it lacks of a group.
func (m *Map[K, V]) writeBack(group int) {
	m.index.Each(group, func(e *mapEntry[K, V]) {
		switch {
		case e.V.dead:
			m.home.Delete(group, m.encoded(&e.Key))
		case e.V.stale || e.V.touched:
			m.write(e)
		}
	})
	m.home.Flush()
}

// evictEntries writes those of the entries that are alive, logged and far, and removes them from memory.
func (m *Map[K, V]) evictEntries(es []*mapEntry[K, V]) {
	for _, e := range es {
		if e.V.logged && !e.V.touched && !e.V.dead && m.pace.far(&e.Key) {
			if e.V.stale {
				m.write(e)
			}
			m.remove(e)
		}
	}
}

// evictAll is evictEntries for the whole index.
func (m *Map[K, V]) evictAll() {
	m.index.All(func(e *mapEntry[K, V]) { m.evictEntries([]*mapEntry[K, V]{e}) })
}

func (m *Map[K, V]) rangeHome(group int, f func(key *K, v *V) bool) {
	m.writeBack(group)
	m.home.Range(group, nil, nil, func(key, value []byte) bool {
		var k K
		if _, err := m.homeKeys.Decode(bytes.Clone(key), &k); err != nil {
			panic(fmt.Sprintf("operators: state %q: key: %v", m.name, err)) // invariant: a serde reads what it wrote
		}
		if e := m.index.Find(group, &k); e != nil {
			return f(&e.Key, &e.V.val)
		}
		var v V
		if _, err := m.vals.Decode(bytes.Clone(value), &v); err != nil {
			panic(fmt.Sprintf("operators: state %q: value: %v", m.name, err)) // invariant: a serde reads what it wrote
		}
		return f(&k, &v)
	})
}

// applyHome replays a change without decoding it: on disk it has the same form.
func (m *Map[K, V]) applyHome(group int, op byte, key, value []byte) error {
	var k K
	if n, err := m.keys.Decode(key, &k); err != nil || n != len(key) {
		return m.badChange(group, "key", n, len(key), err)
	}
	if e := m.index.Find(group, &k); e != nil {
		m.remove(e)
	}
	if m.pace != nil {
		key = m.encoded(&k)
	}
	switch op {
	case exec.OpDelete:
		m.home.Delete(group, key)
	case exec.OpPut, exec.OpInsert:
		m.home.Put(group, key, value)
	default:
		return fmt.Errorf("state %q, key group %d: change log has operation %d", m.name, group, op)
	}
	return nil
}

// countHome counts what was replayed of some key groups. What the table has of others may be in memory only.
func (m *Map[K, V]) countHome(groups []int) {
	m.home.Flush()
	for _, g := range groups {
		m.count(g, -m.index.Group(g).Values)
	}
	if m.pace != nil {
		m.pace.restored(groups)
		return
	}
	for _, g := range groups {
		m.home.Range(g, nil, nil, func(_, _ []byte) bool {
			m.count(g, 1)
			return true
		})
	}
}

func (m *Map[K, V]) dropHome(group int) {
	m.dirty = slices.DeleteFunc(m.dirty, func(e *mapEntry[K, V]) bool { return int(e.Group) == group })
	g := m.index.Detach(group)
	m.n -= g.Values
	m.size -= g.Bytes
	if m.ends != nil {
		m.ends.Detach(group)
	}
	m.home.Drop(group)
	if m.dropped != nil {
		m.dropped(group)
	}
}
