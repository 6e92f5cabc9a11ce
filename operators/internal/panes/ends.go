package panes

import (
	"slices"
	"sort"
)

// Ends counts panes by their end and key group, ordered by end. For a table with a Home it is all
// that is kept in memory about panes; its size does not depend on the number of keys.
type Ends struct {
	All    []End // to read
	Groups int
	spare  [][]int32
}

// End is the number of panes that end at a time, by key group. Invariant: n is the sum of By, and
// positive.
type End struct {
	End int64
	By  []int32
	n   int
}

// After returns the index of the first end > t.
func (x *Ends) After(t int64) int {
	if n := len(x.All); n == 0 || x.All[n-1].End <= t {
		return n
	}
	return sort.Search(len(x.All), func(i int) bool { return x.All[i].End > t })
}

// Of returns how many panes of a group end at end.
func (x *Ends) Of(group int, end int64) int {
	if i := x.After(end - 1); i < len(x.All) && x.All[i].End == end {
		return int(x.All[i].By[group])
	}
	return 0
}

// Count adds n, which may be negative.
func (x *Ends) Count(group int, end int64, n int) {
	i := x.After(end - 1)
	if i == len(x.All) || x.All[i].End != end {
		x.All = slices.Insert(x.All, i, End{End: end, By: x.zeros()})
	}
	e := &x.All[i]
	e.By[group] += int32(n)
	if e.n += n; e.n == 0 {
		x.remove(i, i+1)
	}
}

func (x *Ends) zeros() []int32 {
	if n := len(x.spare); n > 0 {
		by := x.spare[n-1]
		x.spare = x.spare[:n-1]
		clear(by)
		return by
	}
	return make([]int32, x.Groups)
}

func (x *Ends) remove(from, to int) {
	for _, e := range x.All[from:to] {
		x.spare = append(x.spare, e.By)
	}
	x.All = slices.Delete(x.All, from, to)
}

// Expire removes the ends in (from, to] and returns the number of their panes.
func (x *Ends) Expire(from, to int64) (n int) {
	i, k := x.After(from), x.After(to)
	for _, e := range x.All[i:k] {
		n += e.n
	}
	x.remove(i, k)
	return n
}

// InGroup returns the number of panes of a group.
func (x *Ends) InGroup(group int) (n int) {
	for i := range x.All {
		n += int(x.All[i].By[group])
	}
	return n
}

// DropGroup removes a group and returns the number of its panes.
func (x *Ends) DropGroup(group int) (n int) {
	for i := range x.All {
		e := &x.All[i]
		n += int(e.By[group])
		e.n -= int(e.By[group])
		e.By[group] = 0
	}
	x.All = slices.DeleteFunc(x.All, func(e End) bool { return e.n == 0 })
	return n
}
