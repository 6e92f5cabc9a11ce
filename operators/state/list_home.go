package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"tailrace.dev/tailrace/operators/internal/index"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// This file has what a List does if it uses a Home. Its index is then a cache of keys with all
// of their values, which leave it at commits like a Map's entries. In the home the values of a
// key are together, in the order of arrival:
//
//	length(uvarint) key            → 0                      the note: there are values
//	length(uvarint) key number(u64) → time(zigzag) value    a value, as in the change log
//
// A value is written when its key leaves memory for the first time since it came, and never again.
// Values come nearly in the order of time, so that those that expire are mostly the first: one
// range.

// listHome is the additional state of a List that uses a Home.
type listHome struct {
	home    exec.Home
	away    int // values that are on disk only
	size    int // of the encoded values in memory
	hand    index.Hand
	row     []byte
	value   []byte
	applied []byte // the key of the value that was replayed last, with a note
	at      int    // its group
}

// Spill makes the table use a Home, while it is empty.
func (m *List[K, V]) Spill(h exec.Home) {
	m.disk = &listHome{home: h, at: -1}
}

func (d *listHome) grow(size *int, by int) {
	*size += by
	d.size += by
}

// shrink subtracts the share of n values of so many from their size.
func (d *listHome) shrink(size *int, n, of int) { d.grow(size, -*size*n/of) }

func (m *List[K, V]) bytesHome() int {
	var e listEntry[K, V]
	return m.disk.size + m.index.Size()*int(unsafe.Sizeof(e))
}

// note returns the key of a key's note, with room for a number behind it; valid until the next
// call.
func (d *listHome) note(key []byte) []byte {
	d.row = append(binary.AppendUvarint(d.row[:0], uint64(len(key))), key...)
	return d.row
}

var noteValue = []byte{0}

func (m *List[K, V]) note(key *K) []byte {
	m.scratch = m.keys.Append(m.scratch[:0], key)
	return m.disk.note(m.scratch)
}

// fetch reads a key's values into memory, nil if there are none.
func (m *List[K, V]) fetch(group int, key *K) *listEntry[K, V] {
	d := m.disk
	note := m.note(key)
	var ok bool
	if d.value, ok = d.home.Get(group, note, d.value[:0]); !ok {
		return nil
	}
	e := m.insert(group, key)
	l := &e.V
	from := binary.BigEndian.AppendUint64(bytes.Clone(note), 0)
	to := binary.BigEndian.AppendUint64(bytes.Clone(note), ^uint64(0))
	d.home.Range(group, from, to, func(row, value []byte) bool {
		x := Elem[V]{seq: binary.BigEndian.Uint64(row[len(row)-8:])}
		d.grow(&l.size, len(value))
		own := bytes.Clone(value)
		t, n := serde.Zigzag(own)
		x.Time = t
		if k, err := m.vals.Decode(own[max(n, 0):], &x.Value); n <= 0 || err != nil || n+k != len(own) {
			panic(fmt.Sprintf("operators: state %q: value of %d bytes: %v", m.name, len(value), err)) // invariant: a serde reads what it wrote
		}
		l.elems = append(l.elems, x)
		return true
	})
	slices.SortFunc(l.elems, func(a, b Elem[V]) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.seq, b.seq)) })
	l.next = l.afterHighest()
	l.logged, l.saved, l.noted, l.used = l.next, l.next, true, true
	d.away -= len(l.elems)
	if len(l.elems) == 0 {
		m.remove(e)
		return nil
	}
	return e
}

// manyValues is the number of values from which on they are deleted as a range: a range costs
// nearby reads more than a deleted value does.
const manyValues = 8

// forget deletes on disk the values of a key that are gone.
func (m *List[K, V]) forget(le *listEntry[K, V]) {
	d, l, group := m.disk, &le.V, int(le.Group)
	gone := slices.DeleteFunc(l.removed, func(seq uint64) bool { return seq >= l.saved })
	l.removed = gone
	note := m.note(&le.Key)
	if first := l.firstAlive(); len(gone) >= manyValues && slices.Max(gone) < first {
		to := binary.BigEndian.AppendUint64(bytes.Clone(note), first)
		d.home.DeleteRange(group, binary.BigEndian.AppendUint64(note, 0), to)
	} else {
		for _, seq := range gone {
			d.home.Delete(group, binary.BigEndian.AppendUint64(note, seq))
		}
	}
	if len(l.elems) == l.head && l.noted {
		d.home.Delete(group, note)
	}
	l.saved = min(l.saved, l.next)
}

// firstAlive returns the lowest number of the existing values.
func (l *list[V]) firstAlive() uint64 {
	first := ^uint64(0)
	for i := l.head; i < len(l.elems); i++ {
		first = min(first, l.elems[i].seq)
	}
	return first
}

// evict reduces memory below the limit, as Map.evict does.
func (m *List[K, V]) evict() {
	d := m.disk
	defer d.home.Flush()
	if m.index.Size() == 0 { // it needs no share of the memory
		return
	}
	limit := d.home.Limit()
	if m.Bytes() <= limit {
		return
	}
	m.index.Sweep(&d.hand, func() bool { return m.Bytes() > limit/8*7 }, func(e *listEntry[K, V]) {
		switch l := &e.V; {
		case len(l.elems) == l.head: // free
		case l.used:
			l.used = false
		default:
			m.evictEntries(e)
		}
	})
}

// evictEntries writes what the home does not have of a key, and removes the key from memory.
func (m *List[K, V]) evictEntries(e *listEntry[K, V]) {
	d, l, group := m.disk, &e.V, int(e.Group)
	note := m.note(&e.Key)
	if !l.noted {
		d.home.Put(group, note, noteValue)
	}
	live := l.elems[l.head:]
	for i := range live {
		x := &live[i]
		if x.seq < l.saved {
			continue
		}
		d.value = m.vals.Append(serde.AppendInt64(d.value[:0], x.Time), &x.Value)
		d.home.Put(group, binary.BigEndian.AppendUint64(note, x.seq), d.value)
	}
	d.away += len(live)
	d.size -= l.size
	clear(l.elems)
	m.remove(e)
}

// applyHome replays a change without decoding it: on disk it has the same form.
func (m *List[K, V]) applyHome(group int, op byte, key []byte, seq uint64, value []byte) {
	d := m.disk
	note := d.note(key)
	if op == exec.OpDelete {
		d.home.Delete(group, binary.BigEndian.AppendUint64(note, seq))
		return
	}
	if d.at != group || !bytes.Equal(d.applied, key) {
		d.at, d.applied = group, append(d.applied[:0], key...)
		d.home.Put(group, note, noteValue)
	}
	d.home.Put(group, binary.BigEndian.AppendUint64(note, seq), value)
}

// countHome counts what was replayed of some key groups, and removes the notes of keys that have no values any more.
func (m *List[K, V]) countHome(groups []int) {
	d := m.disk
	d.home.Flush()
	var alone []byte
	for _, g := range groups {
		before := m.index.Group(g).Values
		m.count(g, -before)
		d.away -= before
		d.home.Range(g, nil, nil, func(row, _ []byte) bool {
			n, k := binary.Uvarint(row)
			if len(row) > k+int(n) {
				m.count(g, 1)
				d.away++
				alone = alone[:0]
				return true
			}
			m.removeOrphan(g, alone)
			alone = append(alone[:0], row...)
			return true
		})
		m.removeOrphan(g, alone)
		alone = alone[:0]
	}
	d.home.Flush()
	d.at = -1
}

func (m *List[K, V]) removeOrphan(group int, note []byte) {
	if len(note) > 0 {
		m.disk.home.Delete(group, note)
	}
}

func (m *List[K, V]) dropHome(group int) {
	d := m.disk
	m.index.Each(group, func(e *listEntry[K, V]) {
		d.away += len(e.V.elems) - e.V.head
		d.size -= e.V.size
	})
	g := m.index.Detach(group)
	d.away -= g.Values // those that were not in memory
	m.n -= g.Values
	d.home.Drop(group)
	d.at = -1
}
