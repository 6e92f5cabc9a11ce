package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Row is what flows through a job: an item of a stream, a value of a table.
type Row struct {
	K string
	N int64
	S string
}

// Item is a row with its time, and its key where there is one.
type Item struct {
	Key Key
	Row Row
	T   int64
}

// Row returns what a source makes of an event.
func (e Event) Row() Row { return Row{e.K, e.N, Body(e.N, e.Size)} }

// Body returns a text of so many bytes that depends on n.
func Body(n int64, size int) string {
	if size == 0 {
		return ""
	}
	unit := strconv.FormatUint(mix(uint64(n)), 36) + "-"
	return strings.Repeat(unit, size/len(unit)+1)[:size]
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Hash returns a hash of a text.
func Hash(s string) uint64 {
	h := mix(uint64(len(s)))
	for ; len(s) >= 8; s = s[8:] {
		h = mix(h ^ (uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56))
	}
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

// short is a text that stands for s in a line: s, or its beginning, length and hash.
func short(s string) string {
	if len(s) <= 40 {
		return s
	}
	return fmt.Sprintf("%s…%d/%x", s[:8], len(s), Hash(s))
}

func (r Row) hash() uint64 {
	return mix(Hash(r.K) ^ mix(uint64(r.N)) ^ mix(mix(Hash(r.S))))
}

// Line is a row as a sink writes it, behind its key and a tab: fields with tabs in between.
func (r Row) Line() string { return fmt.Sprintf("%q\t%d\t%q", short(r.K), r.N, short(r.S)) }

// Acc is the accumulator of all aggregations. What it holds does not depend on the order in
// which items are added and accumulators merged.
type Acc struct {
	Count, Sum int64
	Hash       uint64
	// Max is the greatest text: a part of an item that is kept.
	Max string
	// Set is sorted: the values of N modulo 16.
	Set []int64
}

// Add folds an item into the accumulator.
func (a *Acc) Add(r *Row) {
	a.Count++
	a.Sum += r.N
	a.Hash += r.hash()
	a.Max = max(a.Max, r.K)
	a.Set = insert(a.Set, ((r.N%16)+16)%16)
}

// Merge folds another accumulator into this one.
func (a *Acc) Merge(b *Acc) {
	a.Count += b.Count
	a.Sum += b.Sum
	a.Hash += b.Hash
	a.Max = max(a.Max, b.Max)
	for _, n := range b.Set {
		a.Set = insert(a.Set, n)
	}
}

func insert(set []int64, n int64) []int64 {
	i, found := slices.BinarySearch(set, n)
	if found {
		return set
	}
	// A fresh slice: two accumulators may share one.
	return slices.Concat(set[:i], []int64{n}, set[i:])
}

// Row returns the result; name is the row's K.
func (a *Acc) Row(name string) Row {
	return Row{name, a.Count, fmt.Sprintf("%d %x %s %v", a.Sum, a.Hash, short(a.Max), a.Set)}
}

// Span is the name of the result of a window or a session.
func Span(start, end int64) string { return fmt.Sprintf("[%d,%d)", start, end) }

// Count is the row of a window that only counts.
func Count(name string, n int64) Row { return Row{K: name, N: n} }

// Deleted is in a line of a table in place of the row.
const Deleted = "deleted"
