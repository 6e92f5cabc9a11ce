package state

import (
	"bytes"
	"fmt"
	"slices"
	"unsafe"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/ending"
	"tailrace.dev/tailrace/operators/internal/estimate"
	"tailrace.dev/tailrace/operators/internal/index"
	"tailrace.dev/tailrace/operators/serde"
)

// Map is a table of keyed state: one value a key, in the key's group. It is in memory, or
// partly in a Home. Each commit writes its changes to the change log, the newest value of each key
// that was touched; Apply replays them.
//
// Keys are cloned when they are inserted. Values belong to the table: Get and Upsert return
// pointers into it, valid until the entry is deleted or the task commits. What a caller stores in a
// value must not alias items; Put clones.
type Map[K comparable, V any] struct {
	name  string
	keys  serde.Serde[K]
	vals  serde.Serde[V]
	index index.Index[K, kept[V]]
	ends  *ending.Ends // when the values end; nil: they do not
	// dirty holds the entries touched since the last Changes, in that order.
	dirty []*mapEntry[K, V]
	due   estimate.Changes
	n     int
	size  int
	// restored is called, if the table is in memory, for every entry at Restored, in the order of
	// Range, and at Attach, in no order.
	restored func(group int, key *K, v *V)
	// dropped is called for a key group that has moved away.
	dropped func(group int)
	// small tables stay in memory; the key groups of whole ones come whole. pace is set for a table that
	// holds timers.
	small   bool
	whole   bool
	pace    pacer[K]
	scratch []byte
	// stays says why no part of a key group is re-homed, "": it is. shared is called instead if the entries are of
	// whole groups.
	stays  string
	shared func(from, to int)

	// home holds the entries that are not in the index; nil: the index has all. With a home the
	// index is a cache of at most home.Limit bytes at each commit, and hand is the position of its
	// clock hand.
	home     rows
	homeKeys serde.Serde[K]
	hand     index.Hand
	fetched  []byte
}

type mapEntry[K comparable, V any] = index.Entry[K, kept[V]]

// kept is a value and its state in the log. Invariants: touched ⇔ in dirty; dead ⇒ touched, and the
// entry stays until Changes has logged the deletion, or found that the log never had the key.
type kept[V any] struct {
	val     V
	size    int32 // encoded, when it was last logged
	touched bool
	logged  bool // the log holds a value for it, as of the last Changes
	dead    bool
	// With a home: stale says that the home does not have this value, used that it was read since
	// the clock hand passed.
	stale, used bool
}

// NewMap returns an empty table for a stage of this number of key groups.
func NewMap[K comparable, V any](name string, groups int, keys serde.Serde[K], vals serde.Serde[V]) *Map[K, V] {
	return &Map[K, V]{name: name, keys: keys, vals: vals, index: index.New[K, kept[V]](groups, Hasher(keys))}
}

// Get returns the value of a key, to read, or nil.
func (m *Map[K, V]) Get(group int, key *K) *V {
	if e := m.find(group, key); e != nil && !e.V.dead {
		return &e.V.val
	}
	return nil
}

// find returns a key's entry, dead or alive, or nil.
func (m *Map[K, V]) find(group int, key *K) *mapEntry[K, V] {
	e := m.index.Find(group, key)
	if m.home == nil {
		return e
	}
	if e == nil {
		return m.fetch(group, key)
	}
	e.V.used = true
	return e
}

// Update returns the value of a key, to change in place, or nil.
func (m *Map[K, V]) Update(group int, key *K) *V {
	e := m.find(group, key)
	if e == nil || e.V.dead {
		return nil
	}
	m.touch(e)
	return &e.V.val
}

// Upsert returns the value of a key, to change in place; a key that was not
// there gets a zero value, and created is true.
func (m *Map[K, V]) Upsert(group int, key *K) (v *V, created bool) {
	e, created := m.upsert(group, key)
	return &e.V.val, created
}

// upsert is Upsert for callers that also need the table's own copy of the key.
func (m *Map[K, V]) upsert(group int, key *K) (e *mapEntry[K, V], created bool) {
	e = m.find(group, key)
	if e == nil {
		e = m.insert(group, key)
		created = true
	} else if e.V.dead {
		var zero V
		e.V.val, e.V.dead, created = zero, false, true
		m.count(group, 1)
	}
	m.touch(e)
	return e, created
}

// Entry is Upsert that also returns the table's own copy of the key.
func (m *Map[K, V]) Entry(group int, key *K) (own *K, v *V, created bool) {
	e, created := m.upsert(group, key)
	return &e.Key, &e.V.val, created
}

// Put sets the value of a key to a clone of *v.
func (m *Map[K, V]) Put(group int, key *K, v *V) error {
	dst, _ := m.Upsert(group, key)
	if err := serde.CloneInto(m.vals, dst, v); err != nil {
		return fmt.Errorf("state %q: %w", m.name, err)
	}
	return nil
}

// Delete removes a key, if it is there.
func (m *Map[K, V]) Delete(group int, key *K) {
	e := m.find(group, key)
	if e == nil || e.V.dead {
		return
	}
	m.count(group, -1)
	e.V.dead = true
	m.touch(e)
}

// Range calls f for every entry of a key group in the order of the encoded keys, until it returns
// false. It sorts, so it must not be called for each item. f must not add entries, nor delete
// others than the one it is called with.
func (m *Map[K, V]) Range(group int, f func(key *K, v *V) bool) {
	if m.home != nil {
		m.rangeHome(group, f)
		return
	}
	for _, e := range m.sorted(group) {
		if !f(&e.Key, &e.V.val) {
			return
		}
	}
}

// Groups returns the number of key groups.
func (m *Map[K, V]) Groups() int { return m.index.Groups() }

// KeepInMemory says that the table is small: it uses no Home.
func (m *Map[K, V]) KeepInMemory() { m.small = true }

// OnRestored sets a function that is called for every entry of a key group at Restored, in the order of
// Range, and at Attach, in no order.
func (m *Map[K, V]) OnRestored(f func(group int, key *K, v *V)) { m.restored = f }

// OnDrop sets a function that is called for each key group that has moved away.
func (m *Map[K, V]) OnDrop(f func(group int)) { m.dropped = f }

func (m *Map[K, V]) sorted(group int) []*mapEntry[K, V] {
	return sortedEntries(&m.index, group, m.keys, func(v *kept[V]) bool { return !v.dead })
}

// sortedEntries returns the entries of a group that f holds for, in the order of
// their encoded keys.
func sortedEntries[K comparable, V any](x *index.Index[K, V], group int, keys serde.Serde[K], f func(v *V) bool) []*index.Entry[K, V] {
	type encoded struct {
		key []byte
		e   *index.Entry[K, V]
	}
	var all []encoded
	x.Each(group, func(e *index.Entry[K, V]) {
		if f(&e.V) {
			all = append(all, encoded{keys.Append(nil, &e.Key), e})
		}
	})
	slices.SortFunc(all, func(a, b encoded) int { return bytes.Compare(a.key, b.key) })
	out := make([]*index.Entry[K, V], len(all))
	for i := range all {
		out[i] = all[i].e
	}
	return out
}

func (m *Map[K, V]) count(group, n int) {
	m.n += n
	m.index.Group(group).Values += n
}

// measure counts the encoded value of an entry.
func (m *Map[K, V]) measure(e *mapEntry[K, V], size int) {
	more := size - int(e.V.size)
	m.size += more
	m.index.Group(int(e.Group)).Bytes += more
	e.V.size = int32(size)
}

func (m *Map[K, V]) insert(group int, key *K) *mapEntry[K, V] {
	m.count(group, 1)
	return m.index.Insert(group, ownKey(m.keys, m.name, key))
}

// ownKey clones a key for a table.
func ownKey[K any](keys serde.Serde[K], table string, key *K) K {
	k, err := serde.Clone(keys, key)
	if err != nil {
		// The serde cannot decode what it has encoded; its own tests must find that.
		panic(fmt.Sprintf("operators: state %q: key: %v", table, err))
	}
	return k
}

func (m *Map[K, V]) touch(e *mapEntry[K, V]) {
	if !e.V.touched {
		e.V.touched = true
		m.dirty = append(m.dirty, e)
	}
}

// remove removes an entry from the table.
func (m *Map[K, V]) remove(e *mapEntry[K, V]) {
	m.measure(e, 0)
	m.index.Remove(e)
}

// Describe returns the type of the entries.
func (m *Map[K, V]) Describe() string {
	vals := serde.NameOf(m.vals)
	if m.ends != nil {
		vals = "ending " + vals
	}
	return "map " + serde.NameOf(m.keys) + " → " + vals
}

// Name returns the table's name.
func (m *Map[K, V]) Name() string { return m.name }

// Len returns the number of keys.
func (m *Map[K, V]) Len() int { return m.n }

// Keys implements exec.StateTable.
func (m *Map[K, V]) Keys(group int) int { return m.index.Group(group).Values }

// Bytes returns a rough size in memory.
func (m *Map[K, V]) Bytes() int {
	return m.index.Size()*m.perEntry() + m.size
}

func (m *Map[K, V]) perEntry() int {
	var e mapEntry[K, V]
	n := int(unsafe.Sizeof(e)) + 16
	if m.ends != nil {
		n += int(unsafe.Sizeof(ending.Ending{}))
	}
	return n
}

// Pending implements StateTable.
func (m *Map[K, V]) Pending() int { return m.due.Bytes(len(m.dirty)) }

// putOp returns the operation that puts a value: logged says that the log has a value for its key.
func putOp(logged bool) byte {
	if logged {
		return exec.OpPut
	}
	return exec.OpInsert
}

// Changes appends what has changed since the last call.
func (m *Map[K, V]) Changes(table int, out *exec.Output) {
	items, before := len(m.dirty), estimate.Total(out)
	defer func() { m.due.Were(items, estimate.Total(out)-before) }()
	if m.home != nil && m.pace != nil {
		m.pace.sweep()
	}
	for _, e := range m.dirty {
		e.V.touched, e.V.stale = false, true
		if e.V.dead && m.home != nil {
			m.home.Delete(int(e.Group), m.encoded(&e.Key))
		}
		if e.V.dead && (!e.V.logged || out == nil) {
			m.remove(e)
			continue
		}
		if out == nil {
			e.V.logged = m.home != nil // otherwise it could not leave memory
			continue
		}
		s := out.Section(int(e.Group))
		n := len(s.Data)
		s.Data = serde.AppendUint64(s.Data, uint64(table))
		if e.V.dead {
			s.Data = append(s.Data, exec.OpDelete)
			s.Data = m.appendKey(s.Data, e)
			out.AddChange(s, len(s.Data)-n)
			m.remove(e)
			continue
		}
		s.Data = append(s.Data, putOp(e.V.logged))
		s.Data = m.appendKey(s.Data, e)
		m.scratch = m.appendValue(m.scratch[:0], e)
		s.Data = serde.AppendBytes(s.Data, m.scratch)
		out.AddChange(s, len(s.Data)-n)
		e.V.logged = true
		m.measure(e, len(m.scratch))
	}
	if m.home != nil && m.pace != nil {
		m.evictEntries(m.dirty)
	}
	clear(m.dirty)
	m.dirty = m.dirty[:0]
	if m.home != nil {
		m.evict()
	}
}

func (m *Map[K, V]) appendKey(dst []byte, e *mapEntry[K, V]) []byte {
	m.scratch = m.keys.Append(m.scratch[:0], &e.Key)
	return serde.AppendBytes(dst, m.scratch)
}

// appendValue appends the bytes of an entry's value, in the log and in the home.
func (m *Map[K, V]) appendValue(dst []byte, e *mapEntry[K, V]) []byte {
	if m.ends != nil {
		dst = m.ends.Append(dst, e.Group, e.At)
	}
	return m.vals.Append(dst, &e.V.val)
}

// decodeValue sets an entry's value and returns how many of the bytes it has read. The value may
// alias them.
func (m *Map[K, V]) decodeValue(src []byte, e *mapEntry[K, V]) (n int, err error) {
	if m.ends != nil {
		if n, err = m.ends.Decode(src, e.Group, e.At); err != nil {
			return 0, err
		}
	}
	of, err := m.vals.Decode(src[n:], &e.V.val)
	return n + of, err
}

// Apply replays one change.
func (m *Map[K, V]) Apply(group int, op byte, key, value []byte) error {
	if m.home != nil {
		return m.applyHome(group, op, key, value)
	}
	var k K
	if n, err := m.keys.Decode(key, &k); err != nil || n != len(key) {
		return m.badChange(group, "key", n, len(key), err)
	}
	switch op {
	case exec.OpDelete:
		if e := m.index.Find(group, &k); e != nil {
			m.count(group, -1)
			m.remove(e)
		}
		return nil
	case exec.OpPut, exec.OpInsert:
		e := m.index.Find(group, &k)
		if e == nil {
			e = m.insert(group, &k)
		}
		// The value is kept, so it must not alias the caller's bytes.
		n, err := m.decodeValue(bytes.Clone(value), e)
		if err != nil || n != len(value) {
			return m.badChange(group, "value", n, len(value), err)
		}
		e.V.logged = true
		m.measure(e, len(value))
		return nil
	}
	return fmt.Errorf("state %q, key group %d: change log has operation %d", m.name, group, op)
}

func (m *Map[K, V]) badChange(group int, what string, n, size int, err error) error {
	if err == nil {
		err = fmt.Errorf("%d of %d bytes used", n, size)
	}
	return fmt.Errorf("state %q, key group %d: %s in change log: %w", m.name, group, what, err)
}

// Restored calls restored with all entries of the groups.
func (m *Map[K, V]) Restored(groups []int) error {
	if m.home != nil {
		m.countHome(groups)
		return nil
	}
	if m.restored == nil {
		return nil
	}
	for _, g := range groups {
		for _, e := range m.sorted(g) {
			m.restored(g, &e.Key, &e.V.val)
		}
	}
	return nil
}

// mapGroup is what Map.Detach returns.
type mapGroup[K comparable, V any] struct {
	entries index.Group[K, kept[V]]
	ends    *ending.Ends // of this group, as group 0; nil: the values do not end
	keys    serde.Serde[K]
	vals    serde.Serde[V]
	small   bool
}

// Detach implements StateTable.
func (m *Map[K, V]) Detach(group int) exec.Detached {
	if m.home != nil {
		m.dropHome(group)
		return nil
	}
	changed := len(m.dirty)
	m.dirty = slices.DeleteFunc(m.dirty, func(e *mapEntry[K, V]) bool { return int(e.Group) == group })
	changed -= len(m.dirty)
	if m.dropped != nil {
		m.dropped(group)
	}
	g := &mapGroup[K, V]{entries: m.index.Detach(group), keys: m.keys, vals: m.vals, small: m.small}
	m.n -= g.entries.Values
	m.size -= g.entries.Bytes
	if m.ends != nil {
		g.ends = ending.New(1)
		g.ends.Attach(0, m.ends.Detach(group))
	}
	if changed > 0 {
		return nil
	}
	return g
}

// Attach implements StateTable.
func (m *Map[K, V]) Attach(group int, state exec.Detached) error {
	g, ok := state.(*mapGroup[K, V])
	if !ok || m.home != nil {
		return notAttached(m.name, state)
	}
	m.index.Attach(group, g.entries)
	m.n += g.entries.Values
	m.size += g.entries.Bytes
	if m.ends != nil {
		m.ends.Attach(group, g.ends.Detach(0))
	}
	if m.restored != nil {
		m.index.Each(group, func(e *mapEntry[K, V]) { m.restored(group, &e.Key, &e.V.val) })
	}
	return nil
}

// notAttached returns the error of a table that cannot use what another has detached.
func notAttached(name string, state exec.Detached) error {
	return fmt.Errorf("state %q: the table does not take over %T", name, state)
}
