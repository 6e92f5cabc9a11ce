package state

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"tailrace.dev/tailrace/operators/internal/index"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/estimate"
	"tailrace.dev/tailrace/operators/serde"
)

// List is a table of keyed state that holds any number of values a key, each with a time, in
// the order of (time, arrival). Adding and expiring touch only the values concerned, in memory and
// in the change log: a key that collects ten thousand values does not write ten thousand at each
// commit.
//
// In the change log each value is an entry of its own: its key is the key's bytes and the value's
// number (uvarint, its order of arrival), its value the time (zigzag varint) and the value's bytes.
type List[K comparable, V any] struct {
	name    string
	keys    serde.Serde[K]
	vals    serde.Serde[V]
	index   index.Index[K, list[V]]
	dirty   []*listEntry[K, V]
	changes int // values added or removed since the last Changes
	due     estimate.Changes
	spare   []list[V]
	n       int // values
	scratch []byte
	disk    *listHome // nil: all values are in memory
}

type listEntry[K comparable, V any] = index.Entry[K, list[V]]

// list is one key's values. elems[head:] are alive, sorted by (time, seq).
type list[V any] struct {
	elems   []Elem[V]
	head    int
	next    uint64    // the number of the next value
	added   []listPos // not in the log yet, by rising number
	removed []uint64  // numbers that are in the log and removed since
	logged  uint64    // next, as of the last Changes
	touched bool
	// With a home: used says that it was read since the clock hand passed, saved that the home has
	// the values below that number, noted that the home has the key's note. size is a rough size of
	// the encoded values.
	used  bool
	saved uint64
	noted bool
	size  int
}

// listPos locates a value: its number, and its time to search by.
type listPos struct {
	seq  uint64
	time int64
}

func comparePos(p listPos, seq uint64) int { return cmp.Compare(p.seq, seq) }

// Elem is a value of a List.
type Elem[V any] struct {
	Time  int64
	Value V
	seq   uint64
}

// Number returns the value's number in its key's list, which determines its order among values of
// one time.
func (e *Elem[V]) Number() uint64 { return e.seq }

// NewList returns an empty table for a stage of this number of key groups.
func NewList[K comparable, V any](name string, groups int, keys serde.Serde[K], vals serde.Serde[V]) *List[K, V] {
	return &List[K, V]{name: name, keys: keys, vals: vals, index: index.New[K, list[V]](groups, Hasher(keys))}
}

// Get returns the values of a key in order. The slice is the table's own and
// valid until the next call that changes the key.
func (m *List[K, V]) Get(group int, key *K) []Elem[V] {
	if e := m.find(group, key); e != nil {
		return e.V.elems[e.V.head:]
	}
	return nil
}

// find returns a key's list, or nil.
func (m *List[K, V]) find(group int, key *K) *listEntry[K, V] {
	e := m.index.Find(group, key)
	if m.disk == nil {
		return e
	}
	if e == nil {
		return m.fetch(group, key)
	}
	e.V.used = true
	return e
}

func (m *List[K, V]) count(group, n int) {
	m.n += n
	m.index.Group(group).Values += n
}

// Add adds a clone of *v to a key's values and returns the table's own copy of
// the key.
func (m *List[K, V]) Add(group int, key *K, time int64, v *V) (own *K, err error) {
	e := m.list(group, key)
	l := &e.V
	seq := l.next
	if err := serde.CloneInto(m.vals, &l.insert(Elem[V]{Time: time, seq: seq}).Value, v); err != nil {
		return nil, fmt.Errorf("state %q: %w", m.name, err)
	}
	l.next++
	l.added = append(l.added, listPos{seq, time})
	m.changes++
	m.count(group, 1)
	m.touch(e)
	return &e.Key, nil
}

// list returns a key's list, creating it if necessary.
func (m *List[K, V]) list(group int, key *K) *listEntry[K, V] {
	if e := m.find(group, key); e != nil {
		return e
	}
	return m.insert(group, key)
}

func (m *List[K, V]) insert(group int, key *K) *listEntry[K, V] {
	e := m.index.Insert(group, ownKey(m.keys, m.name, key))
	if n := len(m.spare); n > 0 {
		e.V, m.spare = m.spare[n-1], m.spare[:n-1]
	}
	return e
}

// maxSpare bounds the lists kept for new keys, and the values that one had room for.
const maxSpare, maxSpareRoom = 1 << 15, 16

// remove removes a key whose list is empty, and keeps its memory for reuse.
func (m *List[K, V]) remove(e *listEntry[K, V]) {
	if l := &e.V; len(m.spare) < maxSpare && cap(l.elems) <= maxSpareRoom {
		m.spare = append(m.spare, list[V]{elems: l.elems[:0], added: l.added[:0], removed: l.removed[:0]})
	}
	m.index.Remove(e)
}

// insert inserts e in order, mostly at the end, and returns a pointer to it.
func (l *list[V]) insert(e Elem[V]) *Elem[V] {
	live := l.elems[l.head:]
	at := len(live)
	if at > 0 && e.before(&live[at-1]) {
		at = sort.Search(len(live), func(i int) bool { return e.before(&live[i]) })
	}
	l.elems = slices.Insert(l.elems, l.head+at, e)
	return &l.elems[l.head+at]
}

func (e *Elem[V]) before(o *Elem[V]) bool {
	return e.Time < o.Time || e.Time == o.Time && e.seq < o.seq
}

// SearchTime returns how many of the values, which are sorted, have a time < t.
func SearchTime[V any](all []Elem[V], t int64) int {
	lo, hi := 0, len(all)
	for lo < hi {
		if m := int(uint(lo+hi) / 2); all[m].Time < t {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (m *List[K, V]) touch(e *listEntry[K, V]) {
	if !e.V.touched {
		e.V.touched = true
		m.dirty = append(m.dirty, e)
	}
}

// isAdded returns which of the values that are not in the log yet has a number, if one has.
func (l *list[V]) isAdded(seq uint64) (at int, found bool) {
	if len(l.added) == 0 || seq < l.added[0].seq {
		return 0, false
	}
	return slices.BinarySearchFunc(l.added, seq, comparePos)
}

// DropBefore removes the values of a key whose time is < t.
func (m *List[K, V]) DropBefore(group int, key *K, t int64) {
	e := m.find(group, key)
	if e == nil {
		return
	}
	live := e.V.elems[e.V.head:]
	if len(live) == 0 || live[0].Time >= t {
		return
	}
	m.dropFront(e, sort.Search(len(live), func(i int) bool { return live[i].Time >= t }))
}

// DropFirst removes the first n values of a key, which has at least n.
func (m *List[K, V]) DropFirst(group int, key *K, n int) {
	if n > 0 {
		m.dropFront(m.find(group, key), n)
	}
}

// Delete removes all values of a key.
func (m *List[K, V]) Delete(group int, key *K) {
	if e := m.find(group, key); e != nil {
		m.dropFront(e, len(e.V.elems)-e.V.head)
	}
}

func (m *List[K, V]) dropFront(le *listEntry[K, V], n int) {
	if n == 0 {
		return
	}
	l := &le.V
	if m.disk != nil {
		m.disk.shrink(&l.size, n, len(l.elems)-l.head)
	}
	for i := range n {
		e := &l.elems[l.head+i]
		if at, found := l.isAdded(e.seq); found {
			l.added = slices.Delete(l.added, at, at+1)
		} else {
			l.removed = append(l.removed, e.seq)
			m.changes++
		}
		*e = Elem[V]{}
	}
	l.head += n
	m.count(int(le.Group), -n)
	if l.head > len(l.elems)/2 {
		// Each value is moved at most once for each one that was dropped.
		l.elems = slices.Delete(l.elems, 0, l.head)
		l.head = 0
	}
	m.touch(le)
}

// Describe returns the type of the entries.
func (m *List[K, V]) Describe() string {
	return "list " + serde.NameOf(m.keys) + " → " + serde.NameOf(m.vals)
}

// Name returns the table's name.
func (m *List[K, V]) Name() string { return m.name }

// Len returns the number of values.
func (m *List[K, V]) Len() int { return m.n }

// Keys implements exec.StateTable.
func (m *List[K, V]) Keys(group int) int { return m.index.Group(group).Values }

// Bytes returns a rough size in memory.
func (m *List[K, V]) Bytes() int {
	var e Elem[V]
	n := m.n * (int(unsafe.Sizeof(e)) + 16)
	if m.disk != nil {
		n += m.bytesHome() - m.disk.away*(int(unsafe.Sizeof(e))+16)
	}
	return n
}

// Pending implements StateTable.
func (m *List[K, V]) Pending() int { return m.due.Bytes(m.changes) }

// Changes appends what has changed since the last call: for each key the removed values, then the
// added ones.
func (m *List[K, V]) Changes(table int, out *exec.Output) {
	items, before := m.changes, estimate.Total(out)
	defer func() {
		m.due.Were(items, estimate.Total(out)-before)
		m.changes = 0
	}()
	for _, le := range m.dirty {
		l := &le.V
		l.touched = false
		if out != nil {
			m.logAll(table, out, le)
		}
		l.renumber()
		if m.disk != nil {
			m.forget(le)
		}
		l.removed, l.added = l.removed[:0], l.added[:0]
		if len(l.elems) == l.head {
			m.remove(le)
		}
	}
	clear(m.dirty)
	m.dirty = m.dirty[:0]
	if m.disk != nil {
		m.evict()
	}
}

// renumber sets the number of the next value behind the highest existing one. So it is a function of
// what is committed, as it is for a restored table, which has nothing else to take it from: a task
// that is restored makes the same changes as one that runs on. The numbers of values that were
// removed are free: the change log ends with their deletion, or has never had them.
func (l *list[V]) renumber() {
	switch n := len(l.added); {
	case n > 0:
		l.next = l.added[n-1].seq + 1
	case l.logged > 0 && slices.Contains(l.removed, l.logged-1):
		l.next = l.afterHighest()
	default:
		l.next = l.logged
	}
	l.logged = l.next
}

// afterHighest returns the number behind the highest of the existing values.
func (l *list[V]) afterHighest() (next uint64) {
	for i := l.head; i < len(l.elems); i++ {
		next = max(next, l.elems[i].seq+1)
	}
	return next
}

func (m *List[K, V]) logAll(table int, out *exec.Output, le *listEntry[K, V]) {
	l := &le.V
	for _, seq := range l.removed {
		m.log(table, out, le, seq, nil)
	}
	live := l.elems[l.head:]
	i := -1
	for _, p := range l.added {
		if i++; i >= len(live) || live[i].seq != p.seq { // else they have come in the order of their times
			e := Elem[V]{Time: p.time, seq: p.seq}
			i = sort.Search(len(live), func(i int) bool { return !live[i].before(&e) })
		}
		m.log(table, out, le, p.seq, &live[i])
	}
}

func (m *List[K, V]) log(table int, out *exec.Output, l *listEntry[K, V], seq uint64, e *Elem[V]) {
	s := out.Section(int(l.Group))
	n := len(s.Data)
	s.Data = serde.AppendUint64(s.Data, uint64(table))
	if e == nil {
		s.Data = append(s.Data, exec.OpDelete)
	} else {
		s.Data = append(s.Data, exec.OpInsert) // a number is used once, or again when it is not in the log
	}
	m.scratch = serde.AppendUint64(m.keys.Append(m.scratch[:0], &l.Key), seq)
	s.Data = serde.AppendBytes(s.Data, m.scratch)
	if e != nil {
		m.scratch = m.vals.Append(serde.AppendInt64(m.scratch[:0], e.Time), &e.Value)
		s.Data = serde.AppendBytes(s.Data, m.scratch)
		if m.disk != nil {
			m.disk.grow(&l.V.size, len(m.scratch))
		}
	}
	out.AddChange(s, len(s.Data)-n)
}

// Apply replays one change.
func (m *List[K, V]) Apply(group int, op byte, key, value []byte) error {
	bad := func(err error) error {
		return fmt.Errorf("state %q, key group %d, in change log: %w", m.name, group, err)
	}
	var k K
	kn, err := m.keys.Decode(key, &k)
	if err != nil {
		return bad(err)
	}
	r := serde.NewReader(key[kn:])
	seq := r.Uint64()
	if r.Err() != nil || kn+r.Pos() != len(key) {
		return bad(serde.ErrMalformed)
	}
	if m.disk != nil && op <= exec.OpInsert {
		m.applyHome(group, op, key[:kn], seq, value)
		return nil
	}
	if op == exec.OpDelete {
		le := m.index.Find(group, &k)
		if le == nil {
			return nil
		}
		l := &le.V
		before := len(l.elems)
		l.elems = slices.DeleteFunc(l.elems, func(e Elem[V]) bool { return e.seq == seq })
		m.count(group, len(l.elems)-before)
		if len(l.elems) == 0 {
			m.remove(le)
		}
		return nil
	}
	if op != exec.OpPut && op != exec.OpInsert {
		return bad(fmt.Errorf("operation %d", op))
	}
	var e Elem[V]
	own := bytes.Clone(value) // the value is kept, so it must not alias the caller's bytes
	t, tn := serde.Zigzag(own)
	if tn <= 0 {
		return bad(serde.ErrMalformed)
	}
	vn, err := m.vals.Decode(own[tn:], &e.Value)
	if err != nil || tn+vn != len(own) {
		return bad(fmt.Errorf("value of %d bytes: %w", len(own), serde.ErrMalformed))
	}
	l := &m.list(group, &k).V
	e.Time, e.seq = t, seq
	if seq < l.next {
		// It may exist already: a snapshot can be ahead of the change log that is replayed after
		// it.
		before := len(l.elems)
		l.elems = slices.DeleteFunc(l.elems, func(o Elem[V]) bool { return o.seq == seq })
		m.count(group, len(l.elems)-before)
	}
	l.insert(e)
	l.next = max(l.next, seq+1)
	m.count(group, 1)
	return nil
}

// Restored implements StateTable. New values are numbered from the highest existing number,
// whatever was replayed: a snapshot does not contain other numbers.
func (m *List[K, V]) Restored(groups []int) error {
	if m.disk != nil {
		m.countHome(groups)
		return nil
	}
	for _, g := range groups {
		m.index.Each(g, func(e *listEntry[K, V]) {
			e.V.next = e.V.afterHighest()
			e.V.logged = e.V.next
		})
	}
	return nil
}

// listGroup is what List.Detach returns.
type listGroup[K comparable, V any] struct {
	entries index.Group[K, list[V]]
	keys    serde.Serde[K]
	vals    serde.Serde[V]
}

// Detach implements StateTable.
func (m *List[K, V]) Detach(group int) exec.Detached {
	changed := len(m.dirty)
	m.dirty = slices.DeleteFunc(m.dirty, func(e *listEntry[K, V]) bool { return int(e.Group) == group })
	changed -= len(m.dirty)
	if m.disk != nil {
		m.dropHome(group)
		return nil
	}
	g := &listGroup[K, V]{entries: m.index.Detach(group), keys: m.keys, vals: m.vals}
	m.n -= g.entries.Values
	if changed > 0 {
		return nil
	}
	return g
}

// Attach implements StateTable.
func (m *List[K, V]) Attach(of int, state exec.Detached) error {
	g, ok := state.(*listGroup[K, V])
	if !ok || m.disk != nil {
		return notAttached(m.name, state)
	}
	m.index.Attach(of, g.entries)
	m.n += g.entries.Values
	return nil
}
