package state

import (
	"bytes"
	"cmp"
	"slices"
	"unsafe"

	"tailrace.dev/tailrace/operators/internal/index"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// Maps is a map of values for each key: a table of the entries of all keys, and, for each key in
// use, a directory of its entries.
//
// Invariants, for a key with a directory: the directory has every entry's key, and n counts them;
// the keys of removed entries stay in it until it is cleaned up. With a home:
//
//  1. A key without a directory has all its entries on disk, or none.
//  2. So the directory is created before an entry is added.
type Maps[K comparable, S cmp.Ordered, V any] struct {
	keys    serde.Serde[K]
	cells   *Expiring[mapKey[K, S], V]
	dirs    index.Index[K, dir[S]]
	spare   [][]S
	room    int          // capacity of all directories, in keys
	key     mapKey[K, S] // a local one would escape, an allocation a call
	visible []S
	home    *mapHome[K, S] // nil: all entries are in memory
}

// dir is a directory.
type dir[S cmp.Ordered] struct {
	keys   []S
	n      int
	sorted bool // and without duplicates
}

// NewMaps returns the maps whose entries are those of an empty table; keys encodes the first parts
// of the table's keys.
func NewMaps[K comparable, S cmp.Ordered, V any](keys serde.Serde[K], x *Expiring[mapKey[K, S], V]) *Maps[K, S, V] {
	h := &Maps[K, S, V]{keys: keys, cells: x, dirs: index.New[K, dir[S]](x.m.Groups(), Hasher(keys))}
	x.gone = h.gone
	x.m.restored = func(group int, key *mapKey[K, S], _ *V) { h.added(group, key) }
	x.m.dropped = func(group int) {
		h.dirs.Each(group, func(e *index.Entry[K, dir[S]]) { h.room -= cap(e.V.keys) })
		h.dirs.Detach(group)
	}
	x.m.pace = &mapPacer[K, S, V]{x.m, h}
	return h
}

func (h *Maps[K, S, V]) at(group int, key *K, k S) (int, *mapKey[K, S]) {
	h.key = mapKey[K, S]{*key, k}
	return group, &h.key
}

// Get returns the value of a key's entry, to read, or nil.
func (h *Maps[K, S, V]) Get(group int, key *K, k S) *V { return h.cells.Get(h.at(group, key, k)) }

// Update returns the value of a key's entry, to change in place, or nil.
func (h *Maps[K, S, V]) Update(group int, key *K, k S) *V { return h.cells.Update(h.at(group, key, k)) }

// Upsert returns the value of a key's entry, to change in place; an entry that was not there gets a
// zero value.
func (h *Maps[K, S, V]) Upsert(group int, key *K, k S) *V {
	_, both := h.at(group, key, k)
	if h.home != nil {
		h.dir(group, key)
	}
	own, v, created := h.cells.Entry(group, both)
	if created {
		h.added(group, own)
	}
	return v
}

// Put sets the value of a key's entry to a clone of *v.
func (h *Maps[K, S, V]) Put(group int, key *K, k S, v *V) error {
	h.Upsert(group, key, k)
	_, both := h.at(group, key, k)
	return h.cells.Put(group, both, v)
}

// Delete removes a key's entry, if it is there.
func (h *Maps[K, S, V]) Delete(group int, key *K, k S) {
	_, both := h.at(group, key, k)
	if !h.has(group, both) {
		return
	}
	h.cells.Delete(group, both)
	h.gone(group, both)
}

// has reports whether the table has an entry, expired or not.
func (h *Maps[K, S, V]) has(group int, key *mapKey[K, S]) bool {
	return h.cells.m.Get(group, key) != nil
}

// Clear removes all entries of a key.
func (h *Maps[K, S, V]) Clear(group int, key *K) {
	for _, k := range h.all(group, key) {
		h.Delete(group, key, k)
	}
}

// Keys returns the keys of a key's entries in rising order. The slice is valid until an entry is
// added, or Keys is called again.
func (h *Maps[K, S, V]) Keys(group int, key *K) []S {
	all := h.all(group, key)
	if h.cells.timers == nil {
		return all
	}
	h.visible = h.visible[:0]
	for _, k := range all {
		if h.Get(group, key, k) != nil {
			h.visible = append(h.visible, k)
		}
	}
	return h.visible
}

// all returns the keys of all entries of a key, expired ones included.
func (h *Maps[K, S, V]) all(group int, key *K) []S {
	d := h.dir(group, key)
	if d == nil {
		return nil
	}
	if d.sorted && len(d.keys) == d.n {
		return d.keys
	}
	if !d.sorted {
		slices.Sort(d.keys)
		d.keys = slices.Compact(d.keys)
		d.sorted = true
	}
	if len(d.keys) > d.n {
		d.keys = slices.DeleteFunc(d.keys, func(k S) bool { return !h.has(h.at(group, key, k)) })
	}
	return d.keys
}

// dir returns a key's directory, nil if it has none because it has no entries.
func (h *Maps[K, S, V]) dir(group int, key *K) *dir[S] {
	if e := h.dirs.Find(group, key); e != nil {
		return &e.V
	}
	if h.home != nil {
		return h.load(group, key)
	}
	return nil
}

// added is called with a new entry's key, which belongs to the table.
func (h *Maps[K, S, V]) added(group int, own *mapKey[K, S]) {
	// Do not use dir, which would load it: the new entry may be on disk, if it was deleted before.
	var d *dir[S]
	if e := h.dirs.Find(group, &own.key); e != nil {
		d = &e.V
	} else {
		d = h.newDir(group, own.key)
	}
	d.sorted = len(d.keys) == 0 || d.sorted && cmp.Less(d.keys[len(d.keys)-1], own.sub)
	before := cap(d.keys)
	d.keys = append(d.keys, own.sub)
	h.room += cap(d.keys) - before
	d.n++
	if len(d.keys) > 2*d.n+8 { // few functions read the keys
		slices.Sort(d.keys)
		d.keys = slices.Compact(d.keys)
		d.sorted = true
		d.keys = slices.DeleteFunc(d.keys, func(k S) bool {
			h.key = mapKey[K, S]{own.key, k}
			return !h.has(group, &h.key)
		})
	}
}

func (h *Maps[K, S, V]) newDir(group int, own K) *dir[S] {
	d := &h.dirs.Insert(group, own).V
	if n := len(h.spare); n > 0 {
		d.keys, h.spare = h.spare[n-1], h.spare[:n-1]
		h.room += cap(d.keys)
	}
	return d
}

// gone is called when an entry was deleted, or has expired.
func (h *Maps[K, S, V]) gone(group int, key *mapKey[K, S]) {
	e := h.dirs.Find(group, &key.key)
	if e == nil {
		return
	}
	if e.V.n--; e.V.n > 0 {
		return
	}
	h.room -= cap(e.V.keys)
	if len(h.spare) < maxSpare && cap(e.V.keys) <= maxSpareRoom {
		h.spare = append(h.spare, e.V.keys[:0])
	}
	h.dirs.Remove(e)
}

// mapHome is the additional state of a mapOf if its entries use a Home.
type mapHome[K comparable, S cmp.Ordered] struct {
	rows    rows
	keys    serde.Serde[mapKey[K, S]]
	dead    func(group int, key *mapKey[K, S]) bool // deleted, and on disk until the commit
	scratch []byte
}

// load makes the directory of a key from what is on disk, nil if there is nothing. The
// encoding of no key is the beginning of another's: what begins with it is the key's.
func (h *Maps[K, S, V]) load(group int, key *K) *dir[S] {
	var d *dir[S]
	m := h.home
	m.scratch = h.keys.Append(m.scratch[:0], key)
	from := bytes.Clone(m.scratch)
	m.rows.Range(group, from, after(from), func(row, _ []byte) bool {
		var k mapKey[K, S]
		if _, err := m.keys.Decode(bytes.Clone(row), &k); err != nil {
			panic("operators: state: key: " + err.Error()) // invariant: a serde reads what it wrote
		}
		if m.dead(group, &k) {
			return true
		}
		if d == nil {
			d = h.newDir(group, k.key)
		}
		before := cap(d.keys)
		d.keys = append(d.keys, k.sub)
		h.room += cap(d.keys) - before
		d.n++
		return true
	})
	return d
}

// after returns the end of the range of keys that begin with a prefix, nil: there is none.
func after(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			to := bytes.Clone(prefix[:i+1])
			to[i]++
			return to
		}
	}
	return nil
}

// mapPacer keeps the directories of maps consistent with a table that uses a home.
type mapPacer[K comparable, S cmp.Ordered, V any] struct {
	m *Map[mapKey[K, S], V]
	h *Maps[K, S, V]
}

func (p *mapPacer[K, S, V]) spill(home exec.Home) (rows, serde.Serde[mapKey[K, S]]) {
	p.h.home = &mapHome[K, S]{rows: home, keys: p.m.keys, dead: func(group int, key *mapKey[K, S]) bool {
		e := p.m.index.Find(group, key)
		return e != nil && e.V.dead
	}}
	return home, p.m.keys
}

func (p *mapPacer[K, S, V]) restored(groups []int) {
	for _, g := range groups {
		p.m.home.Range(g, nil, nil, func(_, _ []byte) bool {
			p.m.count(g, 1)
			return true
		})
	}
}

func (p *mapPacer[K, S, V]) sweep()                 {}
func (p *mapPacer[K, S, V]) far(*mapKey[K, S]) bool { return false }

// trim drops all directories after a commit if they are too large: all entries are on disk then.
func (p *mapPacer[K, S, V]) trim(limit int) int {
	h := p.h
	var s S
	each := int(unsafe.Sizeof(s))
	if h.room*each <= limit {
		return h.room * each
	}
	for g := range p.m.index.Groups() {
		p.m.writeBack(g)
	}
	h.dirs.Reset()
	h.room = 0
	return 0
}

// mapKey is a key of a map under a key of the stream.
type mapKey[K comparable, S cmp.Ordered] struct {
	key K
	sub S
}

// MapKeys returns the serde of the keys of maps.
func MapKeys[K comparable, S cmp.Ordered](keys serde.Serde[K], subs serde.Serde[S]) serde.Serde[mapKey[K, S]] {
	return mapKeySerde[K, S]{keys, subs}
}

type mapKeySerde[K comparable, S cmp.Ordered] struct {
	keys serde.Serde[K]
	subs serde.Serde[S]
}

func (s mapKeySerde[K, S]) Name() string {
	return serde.NameOf(s.keys) + ", " + serde.NameOf(s.subs)
}

func (s mapKeySerde[K, S]) Append(dst []byte, v *mapKey[K, S]) []byte {
	return s.subs.Append(s.keys.Append(dst, &v.key), &v.sub)
}

func (s mapKeySerde[K, S]) Decode(src []byte, v *mapKey[K, S]) (int, error) {
	n, err := s.keys.Decode(src, &v.key)
	if err != nil {
		return 0, err
	}
	m, err := s.subs.Decode(src[n:], &v.sub)
	return n + m, err
}

func (s mapKeySerde[K, S]) Clone(v *mapKey[K, S]) mapKey[K, S] {
	return mapKey[K, S]{ownKey(s.keys, "map", &v.key), ownKey(s.subs, "map", &v.sub)}
}
