package timerqueue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"tailrace.dev/tailrace/operators/serde"
)

// Queue holds (time, key) pairs and returns them in that order, keys in the order of their
// encoding, whatever the order of insertion. Inserting a pair twice has no effect. It is derived
// from state, never logged.
//
// Timers cluster: windows of all keys end together. So they are kept in buckets by time, unsorted,
// with a heap of the times; a bucket is sorted when its time has come.
type Queue[K comparable] struct {
	keys    serde.Serde[K]
	buckets map[int64]*bucket[K]
	heap    []int64 // a min-heap of the times that have a bucket
	// due is the bucket being emptied, sorted, from pos on; nil if none.
	due     *bucket[K]
	dueTime int64
	pos     int
	arena   []byte
	ranks   []ranked   // for sort
	aside   []timer[K] // for sort
	n       int        // timers; a pair that was added twice may count as two
	// A timer is void if its era is not its group's: the group has moved to another task since. of has
	// how many timers of the group's era were added and not returned, at least; void bounds those that
	// are in n and void.
	eras []uint32
	of   []int
	void int
	free []*bucket[K]
	// The bucket that was added to last: most timers of a batch go to one bucket.
	last     *bucket[K]
	lastTime int64
}

type bucket[K comparable] struct{ timers []timer[K] }

// timer is a pending key. prefix and enc are set when its bucket is sorted.
type timer[K comparable] struct {
	group  int32
	era    uint32
	key    K
	prefix uint64
	enc    []byte
}

func New[K comparable](groups int, keys serde.Serde[K]) *Queue[K] {
	return &Queue[K]{keys: keys, buckets: map[int64]*bucket[K]{}, eras: make([]uint32, groups), of: make([]int, groups)}
}

// Add adds a timer. key must not alias items.
func (q *Queue[K]) Add(t int64, group int, key K) {
	q.of[group]++
	q.put(t, timer[K]{group: int32(group), era: q.eras[group], key: key})
}

func (q *Queue[K]) put(t int64, x timer[K]) {
	b := q.last
	if b == nil || q.lastTime != t {
		b = q.buckets[t]
		if b == nil {
			if n := len(q.free); n > 0 {
				b, q.free = q.free[n-1], q.free[:n-1]
			} else {
				b = new(bucket[K])
			}
			q.buckets[t] = b
			q.push(t)
		}
		q.last, q.lastTime = b, t
	}
	b.timers = append(b.timers, x)
	q.n++
}

// Peek returns the time of the first timer; ok is false if there is none.
func (q *Queue[K]) Peek() (t int64, ok bool) {
	switch {
	case q.due != nil && (len(q.heap) == 0 || q.dueTime <= q.heap[0]):
		return q.dueTime, true
	case len(q.heap) > 0:
		return q.heap[0], true
	}
	return 0, false
}

// Pop removes and returns the first timer if its time is ≤ w. ok is false also if all timers of the
// First time were void.
func (q *Queue[K]) Pop(w int64) (t int64, group int, key K, ok bool) {
	t, ok = q.Peek()
	if !ok || t > w {
		return t, 0, key, false
	}
	if q.due == nil || len(q.heap) > 0 && q.heap[0] <= q.dueTime {
		q.activate(t)
	}
	t = q.dueTime
	for ok = false; !ok && q.pos < len(q.due.timers); q.pos++ {
		x := &q.due.timers[q.pos]
		q.n--
		if ok = x.era == q.eras[x.group]; !ok {
			q.void--
			continue
		}
		group, key = int(x.group), x.key
		q.of[group]--
	}
	if q.pos == len(q.due.timers) {
		q.recycle()
	}
	return t, group, key, ok
}

// activate makes the bucket of the first time the one being emptied. If another one was being
// emptied (an earlier or equal timer was added meanwhile), its rest goes back, or into this one.
func (q *Queue[K]) activate(t int64) {
	rest, restTime := q.due, q.dueTime
	b := q.buckets[t]
	delete(q.buckets, t)
	q.popHeap()
	q.last = nil
	if rest != nil {
		left := rest.timers[q.pos:]
		if restTime == t {
			b.timers = append(b.timers, left...)
		} else {
			q.addAll(restTime, left)
			q.last = nil
		}
		q.recycle()
	}
	q.sort(b)
	q.due, q.dueTime, q.pos = b, t, 0
}

// addAll adds timers again that were in the queue before.
func (q *Queue[K]) addAll(t int64, timers []timer[K]) {
	q.n -= len(timers)
	for i := range timers {
		q.put(t, timers[i])
	}
}

// sort sorts a bucket by key. It invalidates all other encodings.
func (q *Queue[K]) sort(b *bucket[K]) {
	q.arena = q.arena[:0]
	for i := range b.timers {
		q.arena = q.keys.Append(q.arena, &b.timers[i].key)
		b.timers[i].prefix = uint64(len(q.arena)) // its end, for now: the arena may move
	}
	from := 0
	for i := range b.timers {
		x := &b.timers[i]
		to := int(x.prefix)
		x.enc = q.arena[from:to:to]
		x.prefix = keyPrefix(x.enc)
		from = to
	}
	q.order(b)
	q.n -= len(b.timers)
	b.timers = slices.CompactFunc(b.timers, func(x, y timer[K]) bool { return x.key == y.key && x.group == y.group && x.era == y.era })
	q.n += len(b.timers)
}

// ranked is the prefix of a timer and its index.
type ranked struct {
	prefix uint64
	at     uint32
}

// order sorts a bucket by compareTimers. The windows of a hundred thousand keys end together, and
// their keys are mostly numbers, so it is a radix sort by those bytes of the prefixes that differ,
// the last first, followed by comparisons for equal prefixes. It sorts ranks, so that a timer is
// moved once.
func (q *Queue[K]) order(b *bucket[K]) {
	var differ uint64
	for i := range b.timers {
		differ |= b.timers[i].prefix ^ b.timers[0].prefix
	}
	passes := 0
	for d := differ; d > 0; d >>= 8 {
		if d&0xff > 0 {
			passes++
		}
	}
	n := len(b.timers)
	if passes > bits.Len(uint(n))/3 || n > math.MaxUint32 { // few timers, or long keys
		slices.SortFunc(b.timers, compareTimers[K])
		return
	}
	q.ranks, q.aside = slices.Grow(q.ranks[:0], 2*n), slices.Grow(q.aside[:0], n)[:n]
	from, to := q.ranks[:n], q.ranks[n:2*n]
	for i := range b.timers {
		from[i] = ranked{b.timers[i].prefix, uint32(i)}
	}
	for shift := 0; shift < 64; shift += 8 {
		if differ>>shift&0xff == 0 {
			continue
		}
		var next [256]uint32
		for i := range from {
			next[from[i].prefix>>shift&0xff]++
		}
		sum := uint32(0)
		for i, count := range next {
			next[i], sum = sum, sum+count
		}
		for i := range from {
			digit := from[i].prefix >> shift & 0xff
			to[next[digit]] = from[i]
			next[digit]++
		}
		from, to = to, from
	}
	for i := range from {
		q.aside[i] = b.timers[from[i].at]
	}
	clear(b.timers)
	b.timers, q.aside = q.aside, b.timers[:0]
	for i := 0; i < n; {
		first := i
		for i++; i < n && b.timers[i].prefix == b.timers[first].prefix; i++ {
			continue
		}
		if i-first > 1 {
			slices.SortFunc(b.timers[first:i], compareTimers[K])
		}
	}
}

func compareTimers[K comparable](x, y timer[K]) int {
	if x.prefix != y.prefix {
		if x.prefix < y.prefix {
			return -1
		}
		return 1
	}
	if c := bytes.Compare(x.enc, y.enc); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(x.group, y.group), cmp.Compare(x.era, y.era))
}

// keyPrefix returns the first eight bytes as a number that sorts like them.
func keyPrefix(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var p [8]byte
	copy(p[:], b)
	return binary.BigEndian.Uint64(p[:])
}

func (q *Queue[K]) recycle() {
	clear(q.due.timers)
	q.due.timers = q.due.timers[:0]
	q.free = append(q.free, q.due)
	q.due, q.pos = nil, 0
}

// DropGroup makes the timers of a key group that moves away void. They are removed when they are
// more than half of all.
func (q *Queue[K]) DropGroup(group int) {
	q.eras[group]++
	q.void += q.of[group]
	q.of[group] = 0
	if q.void > q.n/2 {
		q.purge()
	}
}

// purge removes the void timers.
func (q *Queue[K]) purge() {
	if q.due != nil {
		q.putBack()
	}
	q.n, q.void = 0, 0
	clear(q.of)
	for t, b := range q.buckets {
		b.timers = slices.DeleteFunc(b.timers, func(x timer[K]) bool { return x.era != q.eras[x.group] })
		q.n += len(b.timers)
		for i := range b.timers {
			q.of[b.timers[i].group]++
		}
		if len(b.timers) == 0 {
			delete(q.buckets, t)
		}
	}
	q.times()
}

// Len returns the number of timers in memory, void ones included, and their size in bytes.
func (q *Queue[K]) Len() (n, bytes int) { return q.n, q.n * Size[K]() }

// Size returns the size of a timer in bytes.
func Size[K comparable]() int { return int(unsafe.Sizeof(timer[K]{})) }

// putBack turns the rest of the bucket being emptied into an ordinary bucket.
func (q *Queue[K]) putBack() {
	left, t := slices.Clone(q.due.timers[q.pos:]), q.dueTime
	q.recycle()
	q.addAll(t, left)
}

// times rebuilds the heap as a sorted slice, which is a heap.
func (q *Queue[K]) times() {
	q.last = nil
	q.heap = q.heap[:0]
	for t := range q.buckets {
		q.heap = append(q.heap, t)
	}
	slices.Sort(q.heap)
}

// First returns a lower bound for the first timer: its time and, if that is known without
// searching, its encoded key.
func (q *Queue[K]) First() (t int64, enc []byte, ok bool) {
	if t, ok = q.Peek(); ok && q.due != nil && (len(q.heap) == 0 || t < q.heap[0]) {
		enc = q.due.timers[q.pos].enc
	}
	return t, enc, ok
}

// Cut removes all timers but the first few, which must be fewer than all, and returns the first
// that it has removed. enc is valid until the next call.
func (q *Queue[K]) Cut(few int) (t int64, enc []byte) {
	if q.due != nil {
		q.putBack()
	}
	q.times()
	for i, at := range q.heap {
		b := q.buckets[at]
		if few >= len(b.timers) && i < len(q.heap)-1 {
			few -= len(b.timers)
			continue
		}
		q.sort(b)
		few = min(few, len(b.timers)-1)
		t, enc = at, b.timers[few].enc
		for k, later := range q.heap[i:] {
			b, keep := q.buckets[later], 0
			if k == 0 {
				keep = few
			}
			q.n -= len(b.timers) - keep
			clear(b.timers[keep:])
			if b.timers = b.timers[:keep]; keep == 0 {
				delete(q.buckets, later)
				q.free = append(q.free, b)
			}
		}
		break
	}
	q.times()
	return t, enc
}

func (q *Queue[K]) push(t int64) {
	q.heap = append(q.heap, t)
	i := len(q.heap) - 1
	for i > 0 {
		p := (i - 1) / 2
		if q.heap[p] <= q.heap[i] {
			return
		}
		q.heap[p], q.heap[i] = q.heap[i], q.heap[p]
		i = p
	}
}

func (q *Queue[K]) popHeap() {
	n := len(q.heap) - 1
	q.heap[0] = q.heap[n]
	q.heap = q.heap[:n]
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			return
		}
		if c+1 < n && q.heap[c+1] < q.heap[c] {
			c++
		}
		if q.heap[i] <= q.heap[c] {
			return
		}
		q.heap[i], q.heap[c] = q.heap[c], q.heap[i]
		i = c
	}
}
