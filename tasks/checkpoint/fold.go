package checkpoint

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// fold keeps the newest value of each key of one key group. Keys and values lie in one
// arena, found by an open-addressing table without pointers: a change costs no
// allocation, and the garbage collector sees two slices. A value that does not fit where
// its older one lies goes to the end; what it leaves is lost until reset.
type fold struct {
	slot  []uint32 // number of an item + 1; length 0 or a power of two
	items []folded
	arena []byte
}

type folded struct {
	hash       uint32
	off        uint32 // of the key in the arena; the value follows
	key        uint32 // lengths
	value, cap uint32
	deleted    bool
}

// foldMax bounds the arena of one group, so that offsets fit.
const foldMax = 1 << 31

// put takes a change; a deletion has no value.
func (f *fold) put(key, value []byte, deleted bool) {
	h := uint32(xxhash.Sum64(key))
	if len(f.slot)*3 < (len(f.items)+1)*4 {
		f.grow()
	}
	mask := uint32(len(f.slot) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		n := f.slot[i]
		if n == 0 {
			f.slot[i] = uint32(len(f.items)) + 1
			f.items = append(f.items, f.store(folded{hash: h, key: uint32(len(key)), deleted: deleted}, key, value))
			return
		}
		it := &f.items[n-1]
		if it.hash != h || !bytes.Equal(f.arena[it.off:it.off+it.key], key) {
			continue
		}
		it.deleted = deleted
		if uint32(len(value)) <= it.cap {
			it.value = uint32(copy(f.arena[it.off+it.key:], value))
		} else {
			*it = f.store(*it, key, value)
		}
		return
	}
}

func (f *fold) store(it folded, key, value []byte) folded {
	it.off, it.value, it.cap = uint32(len(f.arena)), uint32(len(value)), uint32(len(value))
	f.arena = append(append(f.arena, key...), value...)
	return it
}

func (f *fold) grow() {
	f.slot = make([]uint32, max(16, 2*len(f.slot)))
	mask := uint32(len(f.slot) - 1)
	for n := range f.items {
		i := f.items[n].hash & mask
		for f.slot[i] != 0 {
			i = (i + 1) & mask
		}
		f.slot[i] = uint32(n) + 1
	}
}

// bytes returns the memory in use.
func (f *fold) bytes() int { return len(f.arena) + 20*len(f.items) + 4*len(f.slot) }

// entries appends what is held. Keys and values alias the arena.
func (f *fold) entries(dst []Entry) []Entry {
	for i := range f.items {
		it := &f.items[i]
		mid := it.off + it.key
		e := Entry{Key: f.arena[it.off:mid:mid]}
		if !it.deleted {
			e.Value = f.arena[mid : mid+it.value : mid+it.value]
		}
		dst = append(dst, e)
	}
	return dst
}

// reset forgets all and keeps the memory.
func (f *fold) reset() {
	clear(f.slot)
	f.items, f.arena = f.items[:0], f.arena[:0]
}
