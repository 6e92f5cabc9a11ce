package operators

import (
	"bytes"
	"cmp"
	"slices"
	"unsafe"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// MapState is a handle on any number of values of the current key, each under a key of its own.
// Reading and changing one costs the same as a Value, however many there are.
type MapState[S cmp.Ordered, V any] interface {
	// Get, Update, Upsert, Put and Delete are those of Value, for one key of the map.
	Get(k S) *V
	Update(k S) *V
	Upsert(k S) *V
	Put(k S, v *V)
	Delete(k S)
	// Keys returns the keys that have a value, in rising order. It is valid until a key
	// is added, or Keys is called again; entries may be changed and deleted meanwhile.
	Keys() []S
	// Clear deletes all entries.
	Clear()
}

// NewMap makes state of a map a key; the name is unique in the function.
//
// Keys is how a function iterates in key order. It iterates over the keys of the current key
// of the stream: which other keys of the stream a task has depends on parallelism. To go
// through many, key the stream by what they have in common, and make them the map's.
//
// In the change log, and on disk, each entry of a map is one of its own: what an item
// changes is what is written.
func NewMap[S cmp.Ordered, V any, K comparable, Out any](c *Context[K, Out], name string, keys serde.Serde[S], vals serde.Serde[V], opts ...StateOption) MapState[S, V] {
	h := &mapOf[K, Out, S, V]{c: c, dirs: newKeyIndex[K, dir[S]](c.rt.Groups(), c.keys)}
	sd := serde.Serde[mapKey[K, S]](mapKeySerde[K, S]{c.keys, keys})
	if o := stateOptionsOf(c, name, opts); o.ttl > 0 {
		t := newExpiring(c, name, sd, vals, o.ttl)
		t.gone = h.gone
		h.cells, h.expires = t, true
		watchKeys(t.m, h)
	} else {
		m := NewStateMap(c.table(name), c.rt.Groups(), sd, vals)
		c.tabs = append(c.tabs, m)
		h.cells = m
		watchKeys(m, h)
	}
	return h
}

// cells are the entries of a table of state.
type cells[P comparable, V any] interface {
	Get(group int, key *P) *V
	Update(group int, key *P) *V
	// cell is Upsert that also returns the table's own copy of the key.
	cell(group int, key *P) (own *P, v *V, created bool)
	Put(group int, key *P, v *V) error
	Delete(group int, key *P)
}

func (m *StateMap[K, V]) cell(group int, key *K) (own *K, v *V, created bool) {
	e, created := m.upsert(group, key)
	return &e.key, &e.v.val, created
}

// mapOf implements MapState by a table of the entries of all keys, and, for each key in use, a
// directory of its entries.
//
// Invariants, for a key with a directory: the directory has every entry's key, and n counts them;
// the keys of removed entries stay in it until it is cleaned up. With a home:
//
//  1. A key without a directory has all its entries on disk, or none.
//  2. So the directory is created before an entry is added.
type mapOf[K comparable, Out any, S cmp.Ordered, V any] struct {
	c       *Context[K, Out]
	cells   cells[mapKey[K, S], V]
	dirs    keyIndex[K, dir[S]]
	spare   [][]S
	room    int // capacity of all directories, in keys
	expires bool
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

func (h *mapOf[K, Out, S, V]) at(k S) (group int, key *mapKey[K, S]) {
	h.key = mapKey[K, S]{h.c.key, k}
	return h.c.group, &h.key
}

func (h *mapOf[K, Out, S, V]) Get(k S) *V { return h.cells.Get(h.at(k)) }

func (h *mapOf[K, Out, S, V]) Update(k S) *V { return h.cells.Update(h.at(k)) }

func (h *mapOf[K, Out, S, V]) Upsert(k S) *V {
	group, key := h.at(k)
	if h.home != nil {
		h.dir(group, &key.key)
	}
	own, v, created := h.cells.cell(group, key)
	if created {
		h.added(group, own)
	}
	return v
}

func (h *mapOf[K, Out, S, V]) Put(k S, v *V) {
	h.Upsert(k)
	group, key := h.at(k)
	if err := h.cells.Put(group, key, v); err != nil {
		h.c.fail(err)
	}
}

func (h *mapOf[K, Out, S, V]) Delete(k S) {
	group, key := h.at(k)
	if !h.has(group, key) {
		return
	}
	h.cells.Delete(group, key)
	h.gone(group, key)
}

// has reports whether the table has an entry, expired or not.
func (h *mapOf[K, Out, S, V]) has(group int, key *mapKey[K, S]) bool {
	if x, ok := h.cells.(*expiring[mapKey[K, S], V]); ok {
		return x.m.Get(group, key) != nil
	}
	return h.cells.Get(group, key) != nil
}

func (h *mapOf[K, Out, S, V]) Clear() {
	for _, k := range h.all() {
		h.Delete(k)
	}
}

func (h *mapOf[K, Out, S, V]) Keys() []S {
	all := h.all()
	if !h.expires {
		return all
	}
	h.visible = h.visible[:0]
	for _, k := range all {
		if h.Get(k) != nil {
			h.visible = append(h.visible, k)
		}
	}
	return h.visible
}

// all returns the keys of all entries of the current key, expired ones included.
func (h *mapOf[K, Out, S, V]) all() []S {
	d := h.dir(h.c.group, &h.c.key)
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
		d.keys = slices.DeleteFunc(d.keys, func(k S) bool { return !h.has(h.at(k)) })
	}
	return d.keys
}

// dir returns a key's directory, nil if it has none because it has no entries.
func (h *mapOf[K, Out, S, V]) dir(group int, key *K) *dir[S] {
	if e := h.dirs.find(group, key); e != nil {
		return &e.v
	}
	if h.home != nil {
		return h.load(group, key)
	}
	return nil
}

// added is called with a new entry's key, which belongs to the table.
func (h *mapOf[K, Out, S, V]) added(group int, own *mapKey[K, S]) {
	// Do not use dir, which would load it: the new entry may be on disk, if it was deleted before.
	var d *dir[S]
	if e := h.dirs.find(group, &own.key); e != nil {
		d = &e.v
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

func (h *mapOf[K, Out, S, V]) newDir(group int, own K) *dir[S] {
	d := &h.dirs.insert(group, own).v
	if n := len(h.spare); n > 0 {
		d.keys, h.spare = h.spare[n-1], h.spare[:n-1]
		h.room += cap(d.keys)
	}
	return d
}

// gone is called when an entry was deleted, or has expired.
func (h *mapOf[K, Out, S, V]) gone(group int, key *mapKey[K, S]) {
	e := h.dirs.find(group, &key.key)
	if e == nil {
		return
	}
	if e.v.n--; e.v.n > 0 {
		return
	}
	h.room -= cap(e.v.keys)
	if len(h.spare) < maxSpare && cap(e.v.keys) <= maxSpareRoom {
		h.spare = append(h.spare, e.v.keys[:0])
	}
	h.dirs.remove(e)
}

// watchKeys makes a table maintain h's directories.
func watchKeys[K comparable, Out any, S cmp.Ordered, V, E any](m *StateMap[mapKey[K, S], E], h *mapOf[K, Out, S, V]) {
	m.restored = func(group int, key *mapKey[K, S], _ *E) { h.added(group, key) }
	m.dropped = func(group int) {
		h.dirs.each(group, func(e *indexed[K, dir[S]]) { h.room -= cap(e.v.keys) })
		h.dirs.dropGroup(group)
	}
	m.pace = &mapPacer[K, Out, S, V, E]{m, h}
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
func (h *mapOf[K, Out, S, V]) load(group int, key *K) *dir[S] {
	var d *dir[S]
	m := h.home
	m.scratch = h.c.keys.Append(m.scratch[:0], key)
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

// mapPacer keeps the directories of a map consistent with a table that uses a home.
type mapPacer[K comparable, Out any, S cmp.Ordered, V, E any] struct {
	m *StateMap[mapKey[K, S], E]
	h *mapOf[K, Out, S, V]
}

func (p *mapPacer[K, Out, S, V, E]) spill(home exec.Home) (rows, serde.Serde[mapKey[K, S]]) {
	p.h.home = &mapHome[K, S]{rows: home, keys: p.m.keys, dead: func(group int, key *mapKey[K, S]) bool {
		e := p.m.index.find(group, key)
		return e != nil && e.v.dead
	}}
	return home, p.m.keys
}

func (p *mapPacer[K, Out, S, V, E]) restored() {
	for g := range p.m.index.groups {
		p.m.home.Range(g, nil, nil, func(_, _ []byte) bool {
			p.m.count(g, 1)
			return true
		})
	}
}

func (p *mapPacer[K, Out, S, V, E]) sweep()                 {}
func (p *mapPacer[K, Out, S, V, E]) far(*mapKey[K, S]) bool { return false }

// trim drops all directories after a commit if they are too large: all entries are on disk then.
func (p *mapPacer[K, Out, S, V, E]) trim(limit int) int {
	h := p.h
	var s S
	each := int(unsafe.Sizeof(s))
	if h.room*each <= limit {
		return h.room * each
	}
	for g := range p.m.index.groups {
		p.m.writeBack(g)
	}
	h.dirs.reset()
	h.room = 0
	return 0
}

// mapKey is a key of a map under a key of the stream.
type mapKey[K comparable, S cmp.Ordered] struct {
	key K
	sub S
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
