package operators

import (
	"bytes"
	"fmt"
	"slices"
	"unsafe"

	"tailrace.dev/tailrace/operators/serde"
)

// StateMap is a table of keyed state: one value a key, in the key's group. It
// lives in memory; its changes go to the change log at each commit, the newest
// value of each key that was touched, and come back by Apply.
//
// Keys are cloned when they come in. Values belong to the table: Get and Upsert
// return pointers into it, valid until the entry is deleted or the task
// commits. What a caller stores in a value must not alias items; Put clones.
type StateMap[K comparable, V any] struct {
	name   string
	keys   serde.Serde[K]
	vals   serde.Serde[V]
	groups []map[K]*entry[K, V]
	// dirty holds the entries touched since the last Changes, in that order.
	dirty []*entry[K, V]
	free  []*entry[K, V]
	n     int
	size  int
	// restored is told of every entry at Restored, in the order of Range.
	restored func(group int, key *K, v *V)
	// dropped is told of a key group that has moved away.
	dropped func(group int)
	scratch []byte
}

// entry. Invariants: touched ⇔ in dirty; dead ⇒ touched, and the entry stays
// until Changes has told the log, or found that the log never knew it.
type entry[K comparable, V any] struct {
	key     K
	val     V
	group   int32
	size    int32 // encoded, when it was last seen by the log
	touched bool
	logged  bool // the log holds a value for it
	dead    bool
}

// NewStateMap returns an empty table for a stage of so many key groups.
func NewStateMap[K comparable, V any](name string, groups int, keys serde.Serde[K], vals serde.Serde[V]) *StateMap[K, V] {
	return &StateMap[K, V]{name: name, keys: keys, vals: vals, groups: make([]map[K]*entry[K, V], groups)}
}

// Get returns the value of a key, to read, or nil.
func (m *StateMap[K, V]) Get(group int, key *K) *V {
	if e := m.groups[group][*key]; e != nil && !e.dead {
		return &e.val
	}
	return nil
}

// Update returns the value of a key, to change in place, or nil.
func (m *StateMap[K, V]) Update(group int, key *K) *V {
	e := m.groups[group][*key]
	if e == nil || e.dead {
		return nil
	}
	m.touch(e)
	return &e.val
}

// Upsert returns the value of a key, to change in place; a key that was not
// there gets a zero value, and created is true.
func (m *StateMap[K, V]) Upsert(group int, key *K) (v *V, created bool) {
	e, created := m.upsert(group, key)
	return &e.val, created
}

// upsert is Upsert for who also needs the table's own copy of the key.
func (m *StateMap[K, V]) upsert(group int, key *K) (e *entry[K, V], created bool) {
	e = m.groups[group][*key]
	if e == nil {
		e = m.insert(group, key)
		created = true
	} else if e.dead {
		var zero V
		e.val, e.dead, created = zero, false, true
		m.n++
	}
	m.touch(e)
	return e, created
}

// Put sets the value of a key to a clone of *v.
func (m *StateMap[K, V]) Put(group int, key *K, v *V) error {
	c, err := serde.Clone(m.vals, v)
	if err != nil {
		return fmt.Errorf("state %q: %w", m.name, err)
	}
	dst, _ := m.Upsert(group, key)
	*dst = c
	return nil
}

// Delete removes a key, if it is there.
func (m *StateMap[K, V]) Delete(group int, key *K) {
	e := m.groups[group][*key]
	if e == nil || e.dead {
		return
	}
	m.n--
	e.dead = true
	m.touch(e)
}

// Range calls f for every entry of a key group in the order of the encoded
// keys, until it returns false. It sorts: not for the path of items. f must not
// add or delete entries.
func (m *StateMap[K, V]) Range(group int, f func(key *K, v *V) bool) {
	for _, e := range m.sorted(group) {
		if !f(&e.key, &e.val) {
			return
		}
	}
}

func (m *StateMap[K, V]) sorted(group int) []*entry[K, V] {
	type keyed struct {
		enc []byte
		e   *entry[K, V]
	}
	var all []keyed
	for _, e := range m.groups[group] {
		if !e.dead {
			all = append(all, keyed{m.keys.Append(nil, &e.key), e})
		}
	}
	slices.SortFunc(all, func(a, b keyed) int { return bytes.Compare(a.enc, b.enc) })
	out := make([]*entry[K, V], len(all))
	for i := range all {
		out[i] = all[i].e
	}
	return out
}

func (m *StateMap[K, V]) insert(group int, key *K) *entry[K, V] {
	var e *entry[K, V]
	if n := len(m.free); n > 0 {
		e, m.free = m.free[n-1], m.free[:n-1]
	} else {
		chunk := make([]entry[K, V], 64)
		for i := range chunk[1:] {
			m.free = append(m.free, &chunk[1+i])
		}
		e = &chunk[0]
	}
	k, err := serde.Clone(m.keys, key)
	if err != nil {
		// A serde that cannot read what it has written; its tests are the place
		// to find that out.
		panic(fmt.Sprintf("operators: state %q: key: %v", m.name, err))
	}
	*e = entry[K, V]{key: k, group: int32(group)}
	g := m.groups[group]
	if g == nil {
		g = map[K]*entry[K, V]{}
		m.groups[group] = g
	}
	g[k] = e
	m.n++
	return e
}

func (m *StateMap[K, V]) touch(e *entry[K, V]) {
	if !e.touched {
		e.touched = true
		m.dirty = append(m.dirty, e)
	}
}

// remove takes an entry out of the table for good.
func (m *StateMap[K, V]) remove(e *entry[K, V]) {
	delete(m.groups[e.group], e.key)
	m.size -= int(e.size)
	*e = entry[K, V]{}
	m.free = append(m.free, e)
}

// Name returns the table's name.
func (m *StateMap[K, V]) Name() string { return m.name }

// Len returns the number of keys.
func (m *StateMap[K, V]) Len() int { return m.n }

// Bytes returns a rough size in memory.
func (m *StateMap[K, V]) Bytes() int {
	var e entry[K, V]
	return m.n*(int(unsafe.Sizeof(e))+16) + m.size
}

const (
	opDelete byte = 0
	opPut    byte = 1
)

// Changes appends what has changed since the last call.
func (m *StateMap[K, V]) Changes(table int, out *Output) {
	for _, e := range m.dirty {
		e.touched = false
		if e.dead && !e.logged {
			m.remove(e)
			continue
		}
		s := out.Section(int(e.group))
		n := len(s.Data)
		s.Data = serde.AppendUint64(s.Data, uint64(table))
		if e.dead {
			s.Data = append(s.Data, opDelete)
			s.Data = m.appendKey(s.Data, e)
			out.Add(s, len(s.Data)-n)
			m.remove(e)
			continue
		}
		s.Data = append(s.Data, opPut)
		s.Data = m.appendKey(s.Data, e)
		m.scratch = m.vals.Append(m.scratch[:0], &e.val)
		s.Data = serde.AppendBytes(s.Data, m.scratch)
		out.Add(s, len(s.Data)-n)
		e.logged = true
		m.size += len(m.scratch) - int(e.size)
		e.size = int32(len(m.scratch))
	}
	clear(m.dirty)
	m.dirty = m.dirty[:0]
}

func (m *StateMap[K, V]) appendKey(dst []byte, e *entry[K, V]) []byte {
	m.scratch = m.keys.Append(m.scratch[:0], &e.key)
	return serde.AppendBytes(dst, m.scratch)
}

// Apply replays one change.
func (m *StateMap[K, V]) Apply(group int, op byte, key, value []byte) error {
	var k K
	if n, err := m.keys.Decode(key, &k); err != nil || n != len(key) {
		return m.badChange(group, "key", n, len(key), err)
	}
	switch op {
	case opDelete:
		if e := m.groups[group][k]; e != nil {
			m.n--
			m.remove(e)
		}
		return nil
	case opPut:
		e := m.groups[group][k]
		if e == nil {
			e = m.insert(group, &k)
		}
		// The value will be kept, its bytes will not.
		n, err := m.vals.Decode(bytes.Clone(value), &e.val)
		if err != nil || n != len(value) {
			return m.badChange(group, "value", n, len(value), err)
		}
		e.logged = true
		m.size += len(value) - int(e.size)
		e.size = int32(len(value))
		return nil
	}
	return fmt.Errorf("state %q, key group %d: change log has operation %d", m.name, group, op)
}

func (m *StateMap[K, V]) badChange(group int, what string, n, size int, err error) error {
	if err == nil {
		err = fmt.Errorf("%d of %d bytes used", n, size)
	}
	return fmt.Errorf("state %q, key group %d: %s in change log: %w", m.name, group, what, err)
}

// Restored tells the table's operator of all entries.
func (m *StateMap[K, V]) Restored() error {
	if m.restored == nil {
		return nil
	}
	for g := range m.groups {
		for _, e := range m.sorted(g) {
			m.restored(g, &e.key, &e.val)
		}
	}
	return nil
}

// Drop forgets a key group.
func (m *StateMap[K, V]) Drop(group int) {
	m.dirty = slices.DeleteFunc(m.dirty, func(e *entry[K, V]) bool { return int(e.group) == group })
	for _, e := range m.groups[group] {
		m.size -= int(e.size)
		if !e.dead {
			m.n--
		}
	}
	m.groups[group] = nil
	if m.dropped != nil {
		m.dropped(group)
	}
}
