package state

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/timehome"
	"tailrace.dev/tailrace/operators/serde"
)

// This file has how the entries of a part of a key group come into memory from a Home, when the part is re-homed: those
// that match, and no others. Then they move as those of a table in memory do, in the same order. What is in memory already is
// newer than what is on disk.
//
// What is derived from the entries stays, as far as it is of others: to build it again would be to read the groups.

// bringPart brings the entries of a group into memory that match holds for.
func (m *Map[K, V]) bringPart(group int, match exec.Match) (err error) {
	m.home.Flush() // what waits is not seen
	m.home.Range(group, nil, nil, func(row, value []byte) bool {
		var k K
		if _, err := m.homeKeys.Decode(bytes.Clone(row), &k); err != nil {
			panic(fmt.Sprintf("operators: state %q: key: %v", m.name, err)) // invariant: a serde reads what it wrote
		}
		if m.index.Find(group, &k) != nil {
			return true
		}
		m.scratch = m.keys.Append(m.scratch[:0], &k)
		key, ok := streamKey(m.keys, m.scratch)
		if !ok {
			err = fmt.Errorf("state %q: key of an entry: %w", m.name, serde.ErrMalformed)
			return false
		}
		if match(exec.HashKey(key), key) {
			m.bring(group, &k, value)
		}
		return true
	})
	return err
}

// moved implements pacer. None of a key's entries was in the group before, so the key's new directory has all of them.
func (p *mapPacer[K, S, V]) moved(from, to int, own *mapKey[K, S]) {
	p.h.gone(from, own)
	p.h.added(to, own)
}

// moved implements pacer. Of the old group the queue has a timer that was deleted.
func (ts *Timers[K]) moved(_, to int, own *PaneKey[K]) {
	if !ts.far(own) {
		ts.come(to, own)
	}
}

// bringPart brings the values of those keys of a group into memory that match holds for.
func (m *List[K, V]) bringPart(group int, match exec.Match) {
	var keys []K
	m.disk.home.Flush()
	m.disk.home.Range(group, nil, nil, func(row, _ []byte) bool {
		n, at := binary.Uvarint(row)
		key := row[at:]
		if len(key) > int(n) { // a value, behind its key's note
			return true
		}
		var k K
		if _, err := m.keys.Decode(bytes.Clone(key), &k); err != nil {
			panic(fmt.Sprintf("operators: state %q: key: %v", m.name, err)) // invariant: a serde reads what it wrote
		}
		if m.index.Find(group, &k) == nil && match(exec.HashKey(key), key) {
			keys = append(keys, k)
		}
		return true
	})
	for i := range keys {
		m.find(group, &keys[i])
	}
}

// bringPart brings the panes of two groups into memory that match holds for, in one scan of those ends that they have panes of.
func (m *PaneTable[K, A]) bringPart(from, to int, match exec.Match) {
	d := m.disk
	d.fresh = false
	d.home.Flush()
	for i := range d.ends.All {
		x := &d.ends.All[i]
		if x.By[from] == 0 && x.By[to] == 0 {
			continue
		}
		d.home.All(timehome.Key(nil, x.End), timehome.Key(nil, x.End+1), func(group int, row, value []byte) bool {
			if group != from && group != to {
				return true
			}
			var k K
			key := row[8:]
			if _, err := m.keys.keys.Decode(bytes.Clone(key), &k); err != nil {
				panic(fmt.Sprintf("operators: state %q: key: %v", m.name, err)) // invariant: a serde reads what it wrote
			}
			e := m.index.Find(group, &k)
			if e != nil && e.V.At(x.End) != nil || !match(exec.HashKey(key), key) {
				return true
			}
			if e == nil {
				e = m.index.Insert(group, ownKey(m.keys.keys, m.name, &k))
			}
			m.bring(e, x.End, value)
			return true
		})
	}
}

// left takes a pane that has moved to an entry from the place of the other one: panes are deleted on disk when their window closes,
// which is too late for a group that may have the key's panes again.
func (m *PaneTable[K, A]) left(e, n *PaneEntry[K, A], p *Pane[A]) {
	m.disk.home.Delete(int(e.Group), m.row(&e.Key, p.end))
	m.changed(n, p)
}
