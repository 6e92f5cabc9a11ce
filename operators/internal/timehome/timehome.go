package timehome

import (
	"bytes"
	"encoding/binary"

	"tailrace.dev/tailrace/operators/exec"
)

// Home is an exec.Home for entries that are read by time: panes and timers. Its keys begin with a
// time (Key), and the entries of all key groups are together, so that what is due is one scan
// in the order in which it fires, (time, key), and what has fired is one range to delete. It uses
// group 0 of the Home below for all.
//
//	time(u64, sign flipped) key group(u16) → era(uvarint) value
//
// Dropping a key group increments the group's era. Entries of an older era are ignored. Clean deletes
// them, unless the other entries of their time, with which they go too, are deleted before: it does not
// come to that if the task has nothing of that time when it is over.
//
// The group is in the key: a key that is re-homed has entries of two groups for a while, in a task that restores
// the change logs of both in any order. The encoding of no key is the beginning of another's, so behind the key the group
// does not change the order.
type Home struct {
	h     exec.Home
	eras  []uint64 // by group
	row   []byte
	value []byte
	left  leftovers
	// No entry below swept is alive: the next Flush deletes those that remain, by one range.
	swept []byte
	sweep bool
}

// New returns a Home in another one, for a stage of this number of key groups.
func New(h exec.Home, groups int) *Home {
	return &Home{h: h, eras: make([]uint64, groups)}
}

// Key appends the common prefix of all keys of a time.
func Key(dst []byte, t int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^1<<63)
}

// Time returns the time with which a key begins.
func Time(key []byte) int64 { return int64(binary.BigEndian.Uint64(key) ^ 1<<63) }

// at returns the key of an entry in the Home below, valid until the next call.
func (h *Home) at(group int, key []byte) []byte {
	h.row = binary.BigEndian.AppendUint16(append(h.row[:0], key...), uint16(group))
	return h.row
}

// Get implements exec.Home.
func (h *Home) Get(group int, key, dst []byte) ([]byte, bool) {
	n := len(dst)
	row := h.at(group, key)
	dst, ok := h.h.Get(0, row, dst)
	if !ok {
		return dst, false
	}
	_, _, value, ok := h.open(row, dst[n:])
	if !ok {
		return dst[:n], false
	}
	return dst[:n+copy(dst[n:], value)], true
}

// open splits an entry; ok is false if its era is over.
func (h *Home) open(row, entry []byte) (group int, key, value []byte, ok bool) {
	n := len(row) - 2
	group = int(binary.BigEndian.Uint16(row[n:]))
	era, m := binary.Uvarint(entry)
	return group, row[:n], entry[m:], era == h.eras[group]
}

// Put implements exec.Home. An entry of a key group that comes from another task may be below what was swept.
func (h *Home) Put(group int, key, value []byte) {
	if bytes.Compare(key, h.swept) < 0 {
		h.sweepNow()
		h.swept = h.swept[:0]
	}
	h.value = append(binary.AppendUvarint(h.value[:0], h.eras[group]), value...)
	row := h.at(group, key)
	h.h.Put(0, row, h.value)
	h.left.put(costOf(row, h.value))
}

// Delete implements exec.Home.
func (h *Home) Delete(group int, key []byte) {
	if bytes.Compare(key, h.swept) < 0 {
		h.sweep = true
		return
	}
	h.h.Delete(0, h.at(group, key))
}

// Flush implements exec.Home.
func (h *Home) Flush() {
	h.sweepNow()
	h.h.Flush()
}

// sweepNow deletes what remains below swept, if anything does.
func (h *Home) sweepNow() {
	if h.sweep {
		h.h.DeleteRange(0, nil, h.swept)
		h.sweep = false
	}
}

// Drop implements exec.Home.
func (h *Home) Drop(group int) {
	h.eras[group]++
	h.left.some = true
}

// Limit implements exec.Home.
func (h *Home) Limit() int { return h.h.Limit() }

// DeleteTimes deletes the entries of all groups whose time is in (from, to].
func (h *Home) DeleteTimes(from, to int64) { h.h.DeleteRange(0, Key(nil, from+1), Key(nil, to+1)) }

// Sweep says that no entry below a key is alive, until it is called again. The key has two parts.
func (h *Home) Sweep(prefix, rest []byte) { h.swept = append(append(h.swept[:0], prefix...), rest...) }

// Range scans all groups to find one.
func (h *Home) Range(group int, from, to []byte, f func(key, value []byte) bool) {
	h.All(from, to, func(g int, key, value []byte) bool { return g != group || f(key, value) })
}

// All is Range for all groups, in the order of (time, key).
func (h *Home) All(from, to []byte, f func(group int, key, value []byte) bool) {
	h.h.Range(0, from, to, func(row, entry []byte) bool {
		group, key, value, ok := h.open(row, entry)
		return !ok || bytes.Compare(key, from) < 0 || f(group, key, value) // from may be behind a key, and before its group
	})
}
