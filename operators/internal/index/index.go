// Package index finds the entries of a state table by key group and key.
package index

// Index finds entries by key group and key. Each group has an
// open-addressing table (linear probing, at most three quarters full) of eight bytes a slot and
// without pointers: a look-up that hits costs one cache line of slots and the entry itself, and the
// garbage collector does not scan the slots. Slots and entries are by group, so that one grows without
// stopping the others, and a group that moves away is detached as it is.
//
// Entries are in chunks and never move; a pointer to one is valid until Remove, Detach or Reset.
type Index[K comparable, V any] struct {
	hash   func(*K) uint64
	groups []Group[K, V]
}

// Group is the part of an Index that belongs to a key group. The number of an entry is
// chunk × chunkLen + offset.
type Group[K comparable, V any] struct {
	slot   []slot // length 0 or a power of two
	n      int
	chunks [][]Entry[K, V]
	chunk  int // the one from which entries are allocated
	used   int // its allocated entries
	free   []int32
	// Values and Bytes are for the table, which counts its values by key group, and their bytes.
	Values, Bytes int
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

// Entry is an entry of an Index.
type Entry[K comparable, V any] struct {
	Key   K
	Group int32
	At    int32 // its number
	V     V
}

// slot: at is an entry's number + 1, 0 is free; tag is the low half of its key's hash, whose lowest
// bits are its home slot.
type slot struct {
	tag uint32
	at  int32
}

// New returns an empty index for this number of key groups. The lower half of hash decides where a key's
// slot is.
func New[K comparable, V any](groups int, hash func(*K) uint64) Index[K, V] {
	return Index[K, V]{hash: hash, groups: make([]Group[K, V], groups)}
}

// Groups returns the number of key groups.
func (x *Index[K, V]) Groups() int { return len(x.groups) }

// Group returns the part of a key group, whose counts the caller may change.
func (x *Index[K, V]) Group(group int) *Group[K, V] { return &x.groups[group] }

func (g *Group[K, V]) entry(at int32) *Entry[K, V] {
	return &g.chunks[uint32(at)/chunkLen][uint32(at)%chunkLen]
}

// Find returns a key's entry, or nil.
func (x *Index[K, V]) Find(group int, key *K) *Entry[K, V] {
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
func (x *Index[K, V]) Insert(of int, key K) *Entry[K, V] {
	g := &x.groups[of]
	at := g.next()
	e := g.entry(at)
	e.Key, e.Group, e.At = key, int32(of), at
	if (g.n+1)*4 > len(g.slot)*3 {
		g.grow()
	}
	g.n++
	g.put(slot{uint32(x.hash(&e.Key)), at + 1})
	return e
}

// next returns the number of a free entry, which it allocates.
func (g *Group[K, V]) next() int32 {
	if n := len(g.free); n > 0 {
		at := g.free[n-1]
		g.free = g.free[:n-1]
		return at
	}
	if len(g.chunks) > 0 && g.used == len(g.chunks[g.chunk]) {
		g.chunk, g.used = g.chunk+1, 0
	}
	if g.chunk == len(g.chunks) {
		g.chunks = append(g.chunks, make([]Entry[K, V], chunkSize(g.chunk)))
	}
	g.used++
	return int32(g.chunk*chunkLen + g.used - 1)
}

func (g *Group[K, V]) put(s slot) {
	mask := uint32(len(g.slot) - 1)
	i := s.tag & mask
	for g.slot[i].at != 0 {
		i = (i + 1) & mask
	}
	g.slot[i] = s
}

func (g *Group[K, V]) grow() {
	old := g.slot
	g.slot = make([]slot, max(8, 2*len(old)))
	for _, s := range old {
		if s.at != 0 {
			g.put(s)
		}
	}
}

// Remove removes an entry and clears it.
func (x *Index[K, V]) Remove(e *Entry[K, V]) {
	g := &x.groups[e.Group]
	mask := uint32(len(g.slot) - 1)
	i := uint32(x.hash(&e.Key)) & mask
	for g.slot[i].at != e.At+1 {
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

func (g *Group[K, V]) release(e *Entry[K, V]) {
	g.free = append(g.free, e.At)
	*e = Entry[K, V]{}
}

// Each calls f for all entries of a group, in no particular order. f must not
// insert or remove.
func (x *Index[K, V]) Each(of int, f func(e *Entry[K, V])) {
	for e := range x.groups[of].Entries {
		f(e)
	}
}

// Entries calls yield for all entries, in no particular order, until it returns false.
func (g *Group[K, V]) Entries(yield func(e *Entry[K, V]) bool) {
	for _, s := range g.slot {
		if s.at != 0 && !yield(g.entry(s.at-1)) {
			return
		}
	}
}

// allocated returns the entries of a chunk that were ever allocated; those that are free are zero.
func (g *Group[K, V]) allocated(chunk int) []Entry[K, V] {
	switch {
	case chunk < g.chunk:
		return g.chunks[chunk]
	case chunk == g.chunk && len(g.chunks) > 0:
		return g.chunks[chunk][:g.used]
	}
	return nil
}

// Size returns the number of entries in use.
func (x *Index[K, V]) Size() (n int) {
	for i := range x.groups {
		n += x.groups[i].n
	}
	return n
}

// Hand is a position among the entries of an Index: the next one of a group.
type Hand struct {
	group, chunk, at int
}

// Sweep calls f for the entries from the hand on, round and round, while the table is over its limit,
// for each at most twice. This is the clock algorithm: f removes an entry, or, if it was used since the
// hand passed it, marks it as not used. f is also called with free entries, which are zero.
func (x *Index[K, V]) Sweep(h *Hand, over func() bool, f func(e *Entry[K, V])) {
	for wraps := 0; over(); {
		g := &x.groups[h.group]
		switch {
		case h.chunk >= len(g.chunks):
			*h = Hand{group: (h.group + 1) % len(x.groups)}
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

// All calls f for all entries, and for free ones, which are zero. f may remove the entry.
func (x *Index[K, V]) All(f func(e *Entry[K, V])) {
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

// Detach removes a group with all of its entries, and returns it.
func (x *Index[K, V]) Detach(of int) Group[K, V] {
	g := x.groups[of]
	x.groups[of] = Group[K, V]{}
	return g
}

// Attach adds a group that another index of the same kind has detached; the index has none of its
// entries.
func (x *Index[K, V]) Attach(of int, g Group[K, V]) { x.groups[of] = g }

// Reset removes all entries and keeps the memory.
func (x *Index[K, V]) Reset() {
	for i := range x.groups {
		g := &x.groups[i]
		for chunk := range g.chunks {
			clear(g.allocated(chunk))
		}
		clear(g.slot)
		*g = Group[K, V]{slot: g.slot, chunks: g.chunks, free: g.free[:0]}
	}
}
