package state

import (
	"bytes"
	"encoding/binary"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// timeHome is a Home for entries that are read by time: panes and timers. Its keys begin with a
// time (timeKey), and the entries of all key groups are together, so that what is due is one scan
// in the order in which it fires, (time, key), and what has fired is one range to delete. It uses
// group 0 of the Home below for all.
//
//	time(u64, sign flipped) key → group(uvarint) era(uvarint) value
//
// Dropping a key group increments the group's era. Entries of an older era are ignored, and are
// deleted together with the other entries of their time.
//
// Invariant: a key has one group, which is determined by its hash.
type timeHome struct {
	h     exec.Home
	eras  []uint64 // by group
	value []byte
	// No entry below swept is alive: the next Flush deletes those that remain, by one range.
	swept []byte
	sweep bool
}

func newTimeHome(h exec.Home, groups int) *timeHome {
	return &timeHome{h: h, eras: make([]uint64, groups)}
}

// timeKey appends the common prefix of all keys of a time.
func timeKey(dst []byte, t int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^1<<63)
}

func keyTime(key []byte) int64 { return int64(binary.BigEndian.Uint64(key) ^ 1<<63) }

func (h *timeHome) Get(group int, key, dst []byte) ([]byte, bool) {
	n := len(dst)
	dst, ok := h.h.Get(0, key, dst)
	if !ok {
		return dst, false
	}
	g, value, ok := h.open(dst[n:])
	if !ok || g != group {
		return dst[:n], false
	}
	return dst[:n+copy(dst[n:], value)], true
}

// open splits an entry; ok is false if its era is over.
func (h *timeHome) open(entry []byte) (group int, value []byte, ok bool) {
	g, n := binary.Uvarint(entry)
	era, m := binary.Uvarint(entry[n:])
	return int(g), entry[n+m:], era == h.eras[g]
}

func (h *timeHome) Put(group int, key, value []byte) {
	h.value = binary.AppendUvarint(binary.AppendUvarint(h.value[:0], uint64(group)), h.eras[group])
	h.value = append(h.value, value...)
	h.h.Put(0, key, h.value)
}

func (h *timeHome) Delete(_ int, key []byte) {
	if bytes.Compare(key, h.swept) < 0 {
		h.sweep = true
		return
	}
	h.h.Delete(0, key)
}

func (h *timeHome) Flush() {
	if h.sweep {
		h.h.DeleteRange(0, nil, h.swept)
		h.sweep = false
	}
	h.h.Flush()
}

func (h *timeHome) Drop(group int) { h.eras[group]++ }
func (h *timeHome) Limit() int     { return h.h.Limit() }

// Range scans all groups to find one.
func (h *timeHome) Range(group int, from, to []byte, f func(key, value []byte) bool) {
	h.all(from, to, func(g int, key, value []byte) bool { return g != group || f(key, value) })
}

// all is Range for all groups, in the order of (time, key).
func (h *timeHome) all(from, to []byte, f func(group int, key, value []byte) bool) {
	h.h.Range(0, from, to, func(key, entry []byte) bool {
		group, value, ok := h.open(entry)
		return !ok || f(group, key, value)
	})
}

// timeFirst encodes a pane's key as in a timeHome.
type timeFirst[K comparable] struct{ keys serde.Serde[K] }

func (s timeFirst[K]) Append(dst []byte, v *PaneKey[K]) []byte {
	return s.keys.Append(timeKey(dst, v.Pane), &v.Key)
}

func (s timeFirst[K]) Decode(src []byte, v *PaneKey[K]) (int, error) {
	if len(src) < 8 {
		return 0, serde.ErrMalformed
	}
	n, err := s.keys.Decode(src[8:], &v.Key)
	v.Pane = keyTime(src)
	return 8 + n, err
}
