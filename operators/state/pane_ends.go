package state

import (
	"slices"
	"sort"
)

// paneEnds counts the panes of each end and key group, in the order of ends. It is all that memory
// holds about the panes of a table with a Home, whatever the number of keys.
type paneEnds struct {
	groups int
	all    []paneEnd
	spare  [][]int32
}

// paneEnd: some groups have panes that end at end. Invariant: n > 0, the sum of by.
type paneEnd struct {
	end int64
	n   int
	by  []int32
}

// after returns the index of the first end > t.
func (x *paneEnds) after(t int64) int {
	if n := len(x.all); n == 0 || x.all[n-1].end <= t {
		return n
	}
	return sort.Search(len(x.all), func(i int) bool { return x.all[i].end > t })
}

// of returns how many panes of a group end at end.
func (x *paneEnds) of(group int, end int64) int {
	if i := x.after(end - 1); i < len(x.all) && x.all[i].end == end {
		return int(x.all[i].by[group])
	}
	return 0
}

// count adds n, which may be negative.
func (x *paneEnds) count(group int, end int64, n int) {
	i := x.after(end - 1)
	if i == len(x.all) || x.all[i].end != end {
		x.all = slices.Insert(x.all, i, paneEnd{end: end, by: x.zeros()})
	}
	e := &x.all[i]
	e.by[group] += int32(n)
	if e.n += n; e.n == 0 {
		x.remove(i, i+1)
	}
}

func (x *paneEnds) zeros() []int32 {
	if n := len(x.spare); n > 0 {
		by := x.spare[n-1]
		x.spare = x.spare[:n-1]
		clear(by)
		return by
	}
	return make([]int32, x.groups)
}

func (x *paneEnds) remove(from, to int) {
	for _, e := range x.all[from:to] {
		x.spare = append(x.spare, e.by)
	}
	x.all = slices.Delete(x.all, from, to)
}

// expire removes the ends in (from, to] and returns the number of their panes.
func (x *paneEnds) expire(from, to int64) (n int) {
	i, k := x.after(from), x.after(to)
	for _, e := range x.all[i:k] {
		n += e.n
	}
	x.remove(i, k)
	return n
}

// dropGroup removes a group and returns the number of its panes.
func (x *paneEnds) dropGroup(group int) (n int) {
	for i := range x.all {
		e := &x.all[i]
		n += int(e.by[group])
		e.n -= int(e.by[group])
		e.by[group] = 0
	}
	x.all = slices.DeleteFunc(x.all, func(e paneEnd) bool { return e.n == 0 })
	return n
}
