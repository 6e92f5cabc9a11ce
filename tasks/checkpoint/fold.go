package checkpoint

import (
	"bytes"

	"github.com/cespare/xxhash/v2"

	"tailrace.dev/tailrace/tasks/envelope"
)

// fold keeps the newest value of each key of one key group. Keys and values are in one arena,
// indexed by an open-addressing table without pointers: a change does not allocate, and the garbage
// collector sees two slices.
//
// A key that the store does not hold, and that is deleted before it is written, leaves nothing to
// write. Its item is reused if the key comes back; the space of all such items is reclaimed when
// the fold would have to grow.
//
// Invariants:
//
//  1. Items are in the arena in their order, so that compact moves everything down. A value
//     that does not fit into the space of its older one makes a new item; the older is gone.
//  2. The table has every item except those replaced by a newer one. All others that are
//     gone stay in it until it is rebuilt.
//  3. fresh ⇒ the store does not hold the key.
type fold struct {
	slot  []uint32 // number of an item + 1; length 0 or a power of two
	items []folded
	arena []byte
	held  int // items that are not gone
	bytes int // of the arena that they occupy
}

type folded struct {
	hash        uint32
	off         uint32 // offset of the key in the arena; the value follows
	key         uint32 // lengths
	value, room uint32
	is          standing
	fresh       bool
}

type standing uint8

const (
	isPut standing = iota
	isDeleted
	isGone
)

// itemBytes is the memory of an item besides its slot and its part of the arena.
const itemBytes = 24

// foldMax bounds the arena of one group, so that offsets fit.
const foldMax = 1 << 31

// change adds a change of a key; op is the operation of an envelope.Item. absent says that the
// store does not hold the key, unless a change of it was added since the last reset.
func (f *fold) change(key, value []byte, op byte, absent bool) {
	h := uint32(xxhash.Sum64(key))
	if len(f.slot)*3 < (len(f.items)+1)*4 || len(f.arena)+len(key)+len(value) > cap(f.arena) && 2*f.bytes < len(f.arena) {
		f.grow()
	}
	is := isPut
	if op == envelope.ItemDelete {
		is = isDeleted
	}
	mask := uint32(len(f.slot) - 1)
	i := h & mask
	for ; f.slot[i] != 0; i = (i + 1) & mask {
		it := &f.items[f.slot[i]-1]
		if it.hash == h && bytes.Equal(f.arena[it.off:it.off+it.key], key) {
			f.again(&f.slot[i], it, key, value, is, absent)
			return
		}
	}
	f.slot[i] = f.add(folded{hash: h, is: is, fresh: absent}, key, value)
}

// again adds a change of a key that has an item.
func (f *fold) again(slot *uint32, it *folded, key, value []byte, is standing, absent bool) {
	switch {
	case it.is == isGone: // as if it had never existed
		it.fresh = absent
		f.count(it, 1)
	case is == isDeleted && it.fresh:
		f.count(it, -1)
		it.is = isGone
		return
	}
	it.is = is
	if uint32(len(value)) <= it.room {
		it.value = uint32(copy(f.arena[it.off+it.key:], value))
		return
	}
	x := *it
	f.count(it, -1)
	it.is = isGone
	*slot = f.add(x, key, value)
}

// add appends an item and returns the contents of its slot.
func (f *fold) add(it folded, key, value []byte) uint32 {
	it.off, it.key, it.value, it.room = uint32(len(f.arena)), uint32(len(key)), uint32(len(value)), uint32(len(value))
	f.arena = append(append(f.arena, key...), value...)
	f.items = append(f.items, it)
	f.count(&it, 1)
	return uint32(len(f.items))
}

func (f *fold) count(it *folded, n int) {
	f.held += n
	f.bytes += n * int(it.key+it.room)
}

// grow rebuilds the table: with the same size, if enough of it was gone.
func (f *fold) grow() {
	f.compact()
	size := max(16, len(f.slot))
	if 8*(f.held+1) > 3*size {
		size *= 2
	}
	if size == len(f.slot) {
		clear(f.slot)
	} else {
		f.slot = make([]uint32, size)
	}
	mask := uint32(len(f.slot) - 1)
	for n := range f.items {
		i := f.items[n].hash & mask
		for f.slot[i] != 0 {
			i = (i + 1) & mask
		}
		f.slot[i] = uint32(n) + 1
	}
}

// compact reclaims the space of items that are gone. The table must be rebuilt afterwards.
func (f *fold) compact() {
	if f.held == len(f.items) {
		return
	}
	items, end := f.items[:0], uint32(0)
	for _, it := range f.items {
		if it.is == isGone {
			continue
		}
		n := uint32(copy(f.arena[end:], f.arena[it.off:it.off+it.key+it.room]))
		it.off = end
		end += n
		items = append(items, it)
	}
	f.items, f.arena = items, f.arena[:end]
}

// size returns the memory that the held items use.
func (f *fold) size() int { return f.bytes + itemBytes*f.held + 4*len(f.slot) }

// entries appends the held items. Keys and values alias the arena.
func (f *fold) entries(dst []Entry) []Entry {
	for i := range f.items {
		it := &f.items[i]
		if it.is == isGone {
			continue
		}
		mid := it.off + it.key
		e := Entry{Key: f.arena[it.off:mid:mid]}
		if it.is == isPut {
			e.Value = f.arena[mid : mid+it.value : mid+it.value]
		}
		dst = append(dst, e)
	}
	return dst
}

// markUnsure marks all held keys as possibly in the store.
func (f *fold) markUnsure() {
	for i := range f.items {
		f.items[i].fresh = false
	}
}

// reset removes everything and keeps the memory.
func (f *fold) reset() {
	clear(f.slot)
	f.items, f.arena = f.items[:0], f.arena[:0]
	f.held, f.bytes = 0, 0
}
