package state

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/internal/index"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/internal/timehome"
)

// This file has what a PaneTable does if it uses a Home. Its index is then a cache of panes, which
// leave it at commits like a Map's entries. On disk panes are ordered by (end, key), so that
// the panes of a window that closes are read in the order in which they fire, and those that no
// window needs any more are deleted as one range. No timer is kept for a key: a scan finds what is
// due (package closing).

// paneHome is the additional state of a PaneTable that uses a Home.
type paneHome[K comparable, A any] struct {
	home *timehome.Home
	ends panes.Ends
	// unsaved has, by end, the panes in memory that the home does not have, and some that have left
	// memory since. They are written when their window closes.
	unsaved map[int64][]dirtyPane[K, A]
	dropped bool // a group was, since the last commit
	hand    index.Hand
	// fresh: all panes of the keys that Collect returned last are in memory.
	fresh   bool
	enc     []byte
	fetched []byte
}

// Spill makes the table use a Home, while it is empty. One whose keys have clocks stays in memory.
func (m *PaneTable[K, A]) Spill(h exec.Home) {
	if m.clocks != nil {
		return
	}
	groups := m.index.Groups()
	m.disk = &paneHome[K, A]{
		home: timehome.New(h, groups), ends: panes.Ends{Groups: groups},
		unsaved: map[int64][]dirtyPane[K, A]{},
	}
	m.clock.Spilled(m, &m.disk.ends)
}

// row returns a pane's key in the home, valid until the next call.
func (m *PaneTable[K, A]) row(key *K, end int64) []byte {
	m.disk.enc = m.keys.keys.Append(timehome.Key(m.disk.enc[:0], end), key)
	return m.disk.enc
}

// get returns the home's bytes of a pane, valid until the next call.
func (m *PaneTable[K, A]) get(group int, key *K, end int64) ([]byte, bool) {
	d := m.disk
	if d.ends.Of(group, end) == 0 {
		return nil, false
	}
	var ok bool
	d.fetched, ok = d.home.Get(group, m.row(key, end), d.fetched[:0])
	return d.fetched, ok
}

// fetch reads a pane into memory, nil if there is none.
func (m *PaneTable[K, A]) fetch(e *PaneEntry[K, A], end int64) *Pane[A] {
	value, ok := m.get(int(e.Group), &e.Key, end)
	if !ok {
		return nil
	}
	return m.bring(e, end, value)
}

// bring decodes the home's bytes of a pane into memory.
func (m *PaneTable[K, A]) bring(e *PaneEntry[K, A], end int64, value []byte) *Pane[A] {
	p := m.add(e, end)
	if n, err := m.accs.Decode(bytes.Clone(value), &p.Acc); err != nil || n != len(value) {
		// This table wrote it, and the disk's checksums hold.
		panic(fmt.Sprintf("operators: state %q: value of %d bytes: %v", m.name, len(value), err)) // invariant: a serde reads what it wrote
	}
	p.logged = true
	m.measure(e, p, len(value))
	return p
}

// load reads the panes of a key that end in (from, to] into memory. e is the key's entry; nil stays
// nil if there are none.
func (m *PaneTable[K, A]) load(e *PaneEntry[K, A], group int, key *K, from, to int64) *PaneEntry[K, A] {
	ends := &m.disk.ends
	for i := ends.After(from); i < len(ends.All) && ends.All[i].End <= to; i++ {
		end := ends.All[i].End
		if e != nil && e.V.At(end) != nil {
			continue
		}
		if value, ok := m.get(group, key, end); ok {
			if e == nil {
				e = m.index.Insert(group, ownKey(m.keys.keys, m.name, key))
			}
			m.bring(e, end, value).used = true
		}
	}
	return e
}

// changed records that a pane is about to be changed.
func (m *PaneTable[K, A]) changed(e *PaneEntry[K, A], p *Pane[A]) {
	p.used = true
	if p.stale {
		return
	}
	p.stale = true
	list := m.disk.unsaved[p.end]
	if len(list) == cap(list) {
		list = m.unsaved(list, p.end)
		list = slices.Grow(list, max(len(list), 8))
	}
	m.disk.unsaved[p.end] = append(list, dirtyPane[K, A]{e, p.end})
}

// unsaved removes duplicates from a list, and panes that are not unsaved any more: an entry's slot
// may have been given to another key since.
func (m *PaneTable[K, A]) unsaved(list []dirtyPane[K, A], end int64) []dirtyPane[K, A] {
	kept := list[:0]
	for _, d := range list {
		if p := d.e.V.At(end); p != nil && p.stale {
			p.stale = false
			kept = append(kept, d)
		}
	}
	clear(list[len(kept):])
	for _, d := range kept {
		d.e.V.At(end).stale = true
	}
	return kept
}

func (m *PaneTable[K, A]) write(e *PaneEntry[K, A], p *Pane[A]) {
	m.disk.fetched = m.accs.Append(m.disk.fetched[:0], &p.Acc)
	m.disk.home.Put(int(e.Group), m.row(&e.Key, p.end), m.disk.fetched)
	p.stale = false
}

// evict reduces memory below the limit, as Map.evict does.
func (m *PaneTable[K, A]) evict() {
	d := m.disk
	defer d.home.Clean()
	if d.dropped { // the task may never have a window with the panes of the group again
		d.dropped = false
		for end, list := range d.unsaved {
			if d.unsaved[end] = m.unsaved(list, end); len(d.unsaved[end]) == 0 {
				delete(d.unsaved, end)
			}
		}
	}
	if m.index.Size() == 0 { // it needs no share of the memory
		return
	}
	limit := d.home.Limit()
	if m.Bytes() <= limit {
		return
	}
	d.fresh = false
	m.index.Sweep(&d.hand, func() bool { return m.Bytes() > limit/8*7 }, m.evictEntry)
}

func (m *PaneTable[K, A]) evictEntry(e *PaneEntry[K, A]) {
	for i := len(e.V.all) - 1; i >= 0; i-- { // remove moves the last pane into its place
		p := &e.V.all[i]
		switch {
		case p.touched || p.Dead: // the next commit needs it
		case p.used:
			p.used = false
		default:
			if p.stale {
				m.write(e, p)
			}
			m.remove(e, p)
		}
	}
}

// WriteBack implements OnDisk: it writes to the home what it lacks of the panes that end in (from, to].
func (m *PaneTable[K, A]) WriteBack(from, to int64) {
	d := m.disk
	for i := d.ends.After(from); i < len(d.ends.All) && d.ends.All[i].End <= to; i++ {
		end := d.ends.All[i].End
		kept := m.unsaved(d.unsaved[end], end)
		for _, x := range kept {
			p := x.e.V.At(end)
			if !p.Dead {
				m.write(x.e, p)
			}
			p.stale = p.touched // it may be changed further before the commit
		}
		if kept = slices.DeleteFunc(kept, func(x dirtyPane[K, A]) bool { return !x.e.V.At(end).stale }); len(kept) == 0 {
			delete(d.unsaved, end)
		} else {
			d.unsaved[end] = kept
		}
	}
	d.home.Flush()
}

// Collect reads at most this many panes of each end at once, or this many bytes of them.
const collectPanes, collectBytes = 512, 128 << 10

// Collect implements OnDisk.
func (m *PaneTable[K, A]) Collect(from, to int64, after []byte) (due []DueKey[K], upTo []byte, more bool) {
	type row struct {
		key, value []byte
		group      int
		end        int64
	}
	var rows []row
	d := m.disk
	for i := d.ends.After(from); i < len(d.ends.All) && d.ends.All[i].End <= to; i++ {
		end := d.ends.All[i].End
		lower := timehome.Key(nil, end)
		if after != nil {
			lower = append(append(lower, after...), 0) // the next possible key
		}
		n, size := 0, 0
		d.home.All(lower, timehome.Key(nil, end+1), func(group int, key, value []byte) bool {
			if n == collectPanes || size >= collectBytes {
				if last := rows[len(rows)-1].key; !more || bytes.Compare(last, upTo) < 0 {
					upTo = last
				}
				more = true
				return false
			}
			n, size = n+1, size+len(value)
			both := append(bytes.Clone(key[8:]), value...)
			rows = append(rows, row{both[: len(key)-8 : len(key)-8], both[len(key)-8:], group, end})
			return true
		})
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.group, b.group), cmp.Compare(a.end, b.end))
	})
	for i := range rows {
		r := &rows[i]
		if more && bytes.Compare(r.key, upTo) > 0 {
			break // an end of which not all was read may have the same key
		}
		var key K
		if _, err := m.keys.keys.Decode(r.key, &key); err != nil {
			panic(fmt.Sprintf("operators: state %q: key: %v", m.name, err)) // invariant: a serde reads what it wrote
		}
		e := m.index.Find(r.group, &key)
		if e == nil {
			e = m.index.Insert(r.group, ownKey(m.keys.keys, m.name, &key))
		}
		p := e.V.At(r.end)
		if p == nil {
			p = m.bring(e, r.end, r.value)
		}
		if n := len(due); !p.Dead && (n == 0 || due[n-1].Group != r.group || !bytes.Equal(due[n-1].Enc, r.key)) {
			due = append(due, DueKey[K]{r.group, e.Key, r.key})
		}
	}
	d.fresh = true
	return due, upTo, more
}

// Expire implements OnDisk.
func (m *PaneTable[K, A]) Expire(from, to int64) {
	d := m.disk
	m.n -= d.ends.Expire(from, to)
	for end := range d.unsaved {
		if from < end && end <= to {
			delete(d.unsaved, end)
		}
	}
	d.home.DeleteTimes(from, to)
}

// applyHome replays a change without decoding it.
func (m *PaneTable[K, A]) applyHome(group int, op byte, k *PaneKey[K], value []byte) {
	if op == exec.OpDelete {
		m.disk.home.Delete(group, m.row(&k.Key, k.Pane))
		return
	}
	m.disk.home.Put(group, m.row(&k.Key, k.Pane), value)
}

// countHome counts what was replayed of some key groups. What the table has of others may be in memory only.
func (m *PaneTable[K, A]) countHome(groups []int) {
	d := m.disk
	d.home.Flush()
	d.fresh = false
	of := make([]bool, d.ends.Groups)
	for _, g := range groups {
		of[g] = true
		m.n -= d.ends.DropGroup(g)
	}
	d.home.All(nil, nil, func(group int, key, _ []byte) bool {
		if of[group] {
			m.count(group, timehome.Time(key), 1)
		}
		return true
	})
	m.clock.RestoredOnDisk(of)
}

func (m *PaneTable[K, A]) dropHome(group int) {
	m.index.Each(group, func(e *PaneEntry[K, A]) { e.V.all = nil }) // they may be unsaved
	m.n -= m.disk.ends.DropGroup(group)
	m.disk.home.Drop(group)
	m.disk.dropped = true
}
