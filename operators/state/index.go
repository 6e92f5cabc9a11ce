package state

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"tailrace.dev/tailrace/operators/serde"
)

// Index finds the entries of a state table by key group and key. Each group has an
// open-addressing table (linear probing, at most three quarters full) of eight bytes a slot and
// without pointers: a look-up that hits costs one cache line of slots and the entry itself, and the
// garbage collector does not scan the slots. Slots and entries are by group, so that one grows without
// stopping the others, and a group that moves away is detached as it is.
//
// Entries are in chunks and never move; a pointer to one is valid until remove, detach or Reset.
type Index[K comparable, V any] struct {
	hash   func(*K) uint64
	groups []group[K, V]
}

// group is the part of an Index that belongs to a key group. The number of an entry is
// chunk × chunkLen + offset.
type group[K comparable, V any] struct {
	slot   []slot // length 0 or a power of two
	n      int
	chunks [][]IndexEntry[K, V]
	chunk  int // the one from which entries are allocated
	used   int // its allocated entries
	free   []int32
	// What the table counts by key group: values, and bytes of them.
	values, bytes int
}

const chunkLen = 256

// chunkSize returns the number of entries of a chunk: the first ones are small, because most tables
// have few keys a group.
func chunkSize(chunk int) int {
	switch chunk {
	case 0:
		return 16
	case 1:
		return 64
	}
	return chunkLen
}

// IndexEntry is an entry of an Index.
type IndexEntry[K comparable, V any] struct {
	Key   K
	Group int32
	at    int32
	V     V
}

// slot: at is an entry's number + 1, 0 is free; tag is the low half of its key's hash, whose lowest
// bits are its home slot.
type slot struct {
	tag uint32
	at  int32
}

// NewIndex returns an empty index for this number of key groups.
func NewIndex[K comparable, V any](groups int, keys serde.Serde[K]) Index[K, V] {
	return Index[K, V]{hash: hasher(keys), groups: make([]group[K, V], groups)}
}

func (g *group[K, V]) entry(at int32) *IndexEntry[K, V] {
	return &g.chunks[uint32(at)/chunkLen][uint32(at)%chunkLen]
}

// Find returns a key's entry, or nil.
func (x *Index[K, V]) Find(group int, key *K) *IndexEntry[K, V] {
	g := &x.groups[group]
	if g.n == 0 {
		return nil
	}
	tag, mask := uint32(x.hash(key)), uint32(len(g.slot)-1)
	for i := tag & mask; ; i = (i + 1) & mask {
		s := g.slot[i]
		if s.at == 0 {
			return nil
		}
		if s.tag == tag {
			if e := g.entry(s.at - 1); e.Key == *key {
				return e
			}
		}
	}
}

// Insert adds a key that is not in the index, with a zero value. It keeps the key.
func (x *Index[K, V]) Insert(of int, key K) *IndexEntry[K, V] {
	g := &x.groups[of]
	at := g.next()
	e := g.entry(at)
	e.Key, e.Group, e.at = key, int32(of), at
	if (g.n+1)*4 > len(g.slot)*3 {
		g.grow()
	}
	g.n++
	g.put(slot{uint32(x.hash(&e.Key)), at + 1})
	return e
}

// next returns the number of a free entry, which it allocates.
func (g *group[K, V]) next() int32 {
	if n := len(g.free); n > 0 {
		at := g.free[n-1]
		g.free = g.free[:n-1]
		return at
	}
	if len(g.chunks) > 0 && g.used == len(g.chunks[g.chunk]) {
		g.chunk, g.used = g.chunk+1, 0
	}
	if g.chunk == len(g.chunks) {
		g.chunks = append(g.chunks, make([]IndexEntry[K, V], chunkSize(g.chunk)))
	}
	g.used++
	return int32(g.chunk*chunkLen + g.used - 1)
}

func (g *group[K, V]) put(s slot) {
	mask := uint32(len(g.slot) - 1)
	i := s.tag & mask
	for g.slot[i].at != 0 {
		i = (i + 1) & mask
	}
	g.slot[i] = s
}

func (g *group[K, V]) grow() {
	old := g.slot
	g.slot = make([]slot, max(8, 2*len(old)))
	for _, s := range old {
		if s.at != 0 {
			g.put(s)
		}
	}
}

// remove removes an entry and clears it.
func (x *Index[K, V]) remove(e *IndexEntry[K, V]) {
	g := &x.groups[e.Group]
	mask := uint32(len(g.slot) - 1)
	i := uint32(x.hash(&e.Key)) & mask
	for g.slot[i].at != e.at+1 {
		i = (i + 1) & mask
	}
	// Entries that follow without a gap move up, unless that is before their home slot.
	for j := i; ; {
		j = (j + 1) & mask
		s := g.slot[j]
		if s.at == 0 {
			break
		}
		if (j-s.tag)&mask >= (j-i)&mask {
			g.slot[i] = s
			i = j
		}
	}
	g.slot[i] = slot{}
	g.n--
	g.release(e)
}

func (g *group[K, V]) release(e *IndexEntry[K, V]) {
	g.free = append(g.free, e.at)
	*e = IndexEntry[K, V]{}
}

// each calls f for all entries of a group, in no particular order. f must not
// insert or remove.
func (x *Index[K, V]) each(of int, f func(e *IndexEntry[K, V])) {
	for e := range x.groups[of].entries {
		f(e)
	}
}

// entries calls yield for all entries, in no particular order, until it returns false.
func (g *group[K, V]) entries(yield func(e *IndexEntry[K, V]) bool) {
	for _, s := range g.slot {
		if s.at != 0 && !yield(g.entry(s.at-1)) {
			return
		}
	}
}

// allocated returns the entries of a chunk that were ever allocated; those that are free are zero.
func (g *group[K, V]) allocated(chunk int) []IndexEntry[K, V] {
	switch {
	case chunk < g.chunk:
		return g.chunks[chunk]
	case chunk == g.chunk && len(g.chunks) > 0:
		return g.chunks[chunk][:g.used]
	}
	return nil
}

// size returns the number of entries in use.
func (x *Index[K, V]) size() (n int) {
	for i := range x.groups {
		n += x.groups[i].n
	}
	return n
}

// hand is a position among the entries of an Index: the next one of a group.
type hand struct {
	group, chunk, at int
}

// sweep calls f for the entries from the hand on, round and round, while the table is over its limit,
// for each at most twice. This is the clock algorithm: f removes an entry, or, if it was used since the
// hand passed it, marks it as not used. f is also called with free entries, which are zero.
func (x *Index[K, V]) sweep(h *hand, over func() bool, f func(e *IndexEntry[K, V])) {
	for wraps := 0; over(); {
		g := &x.groups[h.group]
		switch {
		case h.chunk >= len(g.chunks):
			*h = hand{group: (h.group + 1) % len(x.groups)}
			if h.group == 0 {
				wraps++
			}
			if wraps > 2 {
				return
			}
		case h.at >= len(g.allocated(h.chunk)):
			h.chunk, h.at = h.chunk+1, 0
		default:
			h.at++
			f(&g.chunks[h.chunk][h.at-1])
		}
	}
}

// all calls f for all entries, and for free ones, which are zero. f may remove the entry.
func (x *Index[K, V]) all(f func(e *IndexEntry[K, V])) {
	for i := range x.groups {
		g := &x.groups[i]
		for chunk := range g.chunks {
			entries := g.allocated(chunk)
			for k := range entries {
				f(&entries[k])
			}
		}
	}
}

// detach removes a group with all of its entries, and returns it.
func (x *Index[K, V]) detach(of int) group[K, V] {
	g := x.groups[of]
	x.groups[of] = group[K, V]{}
	return g
}

// attach adds a group that another index of the same kind has detached; the index has none of its
// entries.
func (x *Index[K, V]) attach(of int, g group[K, V]) { x.groups[of] = g }

// Reset removes all entries and keeps the memory.
func (x *Index[K, V]) Reset() {
	for i := range x.groups {
		g := &x.groups[i]
		for chunk := range g.chunks {
			clear(g.allocated(chunk))
		}
		clear(g.slot)
		*g = group[K, V]{slot: g.slot, chunks: g.chunks, free: g.free[:0]}
	}
}

// mixInt spreads an integer over 64 bits (a multiplication folded on itself). Like the hash that
// determines key groups it has no seed: keys come from the job, and its results must not depend on
// the process it runs in.
func mixInt(v uint64) uint64 {
	hi, lo := bits.Mul64(v^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

// hasher returns a hash of K: a multiplication for the integers that most keys are, with or without
// a time, else the hash of the encoded key.
func hasher[K comparable](keys serde.Serde[K]) func(*K) uint64 {
	var f any
	switch any((*K)(nil)).(type) {
	case *int64:
		f = func(k *int64) uint64 { return mixInt(uint64(*k)) }
	case *uint64:
		f = func(k *uint64) uint64 { return mixInt(*k) }
	case *int:
		f = func(k *int) uint64 { return mixInt(uint64(*k)) }
	case *string:
		f = func(k *string) uint64 { return xxhash.Sum64String(*k) }
	case *PaneKey[int64]:
		f = func(k *PaneKey[int64]) uint64 { return mixInt(uint64(k.Key) ^ mixInt(uint64(k.Pane))) }
	default:
		var enc []byte
		f = func(k *K) uint64 {
			enc = keys.Append(enc[:0], k)
			return xxhash.Sum64(enc)
		}
	}
	return f.(func(*K) uint64)
}
