package optest

import (
	"maps"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// Place says where a task's tables are stored.
type Place int

const (
	// Anywhere: some in memory, some in homes that have room for a few entries, so that nearly
	// everything leaves memory at each commit.
	Anywhere Place = iota
	InMemory
	OnDisk
)

// home is a Home made of maps.
type home struct {
	limit   int
	groups  map[int]map[string]string
	waiting []func()
}

// NewHome returns a Home of maps with a limit in bytes.
func NewHome(limit int) exec.Home { return newHome(limit) }

func newHome(limit int) *home { return &home{limit: limit, groups: map[int]map[string]string{}} }

func (h *home) Get(group int, key, dst []byte) ([]byte, bool) {
	v, ok := h.groups[group][string(key)]
	return append(dst, v...), ok
}

func (h *home) Put(group int, key, value []byte) {
	k, v := string(key), string(value)
	h.waiting = append(h.waiting, func() {
		if h.groups[group] == nil {
			h.groups[group] = map[string]string{}
		}
		h.groups[group][k] = v
	})
}

func (h *home) Delete(group int, key []byte) {
	k := string(key)
	h.waiting = append(h.waiting, func() { delete(h.groups[group], k) })
}

func (h *home) DeleteRange(group int, from, to []byte) {
	f, t, end := string(from), string(to), to != nil
	h.waiting = append(h.waiting, func() {
		maps.DeleteFunc(h.groups[group], func(k, _ string) bool { return k >= f && (!end || k < t) })
	})
}

func (h *home) Flush() {
	for _, f := range h.waiting {
		f()
	}
	h.waiting = h.waiting[:0]
}

func (h *home) Range(group int, from, to []byte, f func(key, value []byte) bool) {
	for _, k := range slices.Sorted(maps.Keys(h.groups[group])) {
		if k < string(from) || to != nil && k >= string(to) {
			continue
		}
		if !f([]byte(k), []byte(h.groups[group][k])) {
			return
		}
	}
}

func (h *home) Drop(group int) { delete(h.groups, group) }
func (h *home) Limit() int     { return h.limit }
