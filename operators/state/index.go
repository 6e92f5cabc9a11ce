package state

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"tailrace.dev/tailrace/operators/serde"
)

// Index finds the entries of a state table by key group and key. Each group has an
// open-addressing table (linear probing, at most three quarters full) of eight bytes a slot and
// without pointers: a look-up that hits costs one cache line of slots and the entry itself, and the
// garbage collector does not scan the slots. Tables are by group, so that one grows without
// stopping the others and a group that moves away is dropped whole.
//
// Entries are in chunks and never move; a pointer to one is valid until remove, dropGroup or Reset.
type Index[K comparable, V any] struct {
	hash   func(*K) uint64
	groups []slots
	chunks []*[chunkLen]IndexEntry[K, V]
	used   int32 // entries of the chunks that were ever allocated
	free   []int32
}

const chunkLen = 256

// IndexEntry is an entry of an Index.
type IndexEntry[K comparable, V any] struct {
	Key   K
	Group int32
	at    int32
	V     V
}

type slots struct {
	slot []slot // length 0 or a power of two
	n    int
}

// slot: at is an entry's number + 1, 0 is free; tag is the low half of its key's hash, whose lowest
// bits are its home slot.
type slot struct {
	tag uint32
	at  int32
}

// NewIndex returns an empty index for this number of key groups.
func NewIndex[K comparable, V any](groups int, keys serde.Serde[K]) Index[K, V] {
	return Index[K, V]{hash: hasher(keys), groups: make([]slots, groups)}
}

func (x *Index[K, V]) entry(at int32) *IndexEntry[K, V] {
	return &x.chunks[uint32(at)/chunkLen][uint32(at)%chunkLen]
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
			if e := x.entry(s.at - 1); e.Key == *key {
				return e
			}
		}
	}
}

// Insert adds a key that is not in the index, with a zero value. It keeps the key.
func (x *Index[K, V]) Insert(group int, key K) *IndexEntry[K, V] {
	at := x.used
	if n := len(x.free); n > 0 {
		at, x.free = x.free[n-1], x.free[:n-1]
	} else {
		if int(at)/chunkLen == len(x.chunks) {
			x.chunks = append(x.chunks, new([chunkLen]IndexEntry[K, V]))
		}
		x.used++
	}
	e := x.entry(at)
	e.Key, e.Group, e.at = key, int32(group), at
	g := &x.groups[group]
	if (g.n+1)*4 > len(g.slot)*3 {
		g.grow()
	}
	g.n++
	g.put(slot{uint32(x.hash(&e.Key)), at + 1})
	return e
}

func (g *slots) put(s slot) {
	mask := uint32(len(g.slot) - 1)
	i := s.tag & mask
	for g.slot[i].at != 0 {
		i = (i + 1) & mask
	}
	g.slot[i] = s
}

func (g *slots) grow() {
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
	x.release(e)
}

func (x *Index[K, V]) release(e *IndexEntry[K, V]) {
	x.free = append(x.free, e.at)
	*e = IndexEntry[K, V]{}
}

// each calls f for all entries of a group, in no particular order. f must not
// insert or remove.
func (x *Index[K, V]) each(group int, f func(e *IndexEntry[K, V])) {
	for _, s := range x.groups[group].slot {
		if s.at != 0 {
			f(x.entry(s.at - 1))
		}
	}
}

// sweep calls f for the entries from the hand on, round and round, while the table is over its limit,
// for each at most twice. This is the clock algorithm: f removes an entry, or, if it was used since the
// hand passed it, marks it as not used. f is also called with free entries, which are zero.
func (x *Index[K, V]) sweep(hand *int32, over func() bool, f func(e *IndexEntry[K, V])) {
	for steps := 2 * x.used; steps > 0 && over(); steps-- {
		if *hand >= x.used {
			*hand = 0
		}
		e := x.entry(*hand)
		*hand++
		f(e)
	}
}

// dropGroup removes all entries of a group.
func (x *Index[K, V]) dropGroup(group int) {
	x.each(group, x.release)
	x.groups[group] = slots{}
}

// Reset removes all entries and keeps the memory.
func (x *Index[K, V]) Reset() {
	for i := range x.groups {
		clear(x.groups[i].slot)
		x.groups[i].n = 0
	}
	for i := range x.used {
		*x.entry(i) = IndexEntry[K, V]{}
	}
	x.used, x.free = 0, x.free[:0]
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
