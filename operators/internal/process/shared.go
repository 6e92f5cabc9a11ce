//go:build !nokeyed

package process

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/timerqueue"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// sharedClocks are clocks that keys share: n of them in each key group, and a key follows the one of its
// sub-group. The table has, by their numbers, those that W has not reached.
//
// Each clock has queues of its keys' timers, one for each set. A timer that has fired for W, or was
// deleted, stays in them until it is due.
type sharedClocks[K comparable] struct {
	*state.Map[uint8, owns]
	own  ownTime
	w    *int64
	n    int
	keys serde.Serde[K]
	// timers returns those of a set.
	timers func(set int) *state.Timers[K]
	queues [][]sharedTimers[K] // by key group and number; nil: none yet
	enc    []byte
	key    K
	// Of the current item.
	group   int
	current uint8
	clock   owns
}

// sharedTimers are the timers of a clock, by set.
type sharedTimers[K comparable] []*timerqueue.Queue[K]

func newSharedClocks[K comparable](name string, groups, n int, keys serde.Serde[K], own ownTime, w *int64, timers func(set int) *state.Timers[K]) *sharedClocks[K] {
	x := &sharedClocks[K]{own: own, w: w, n: n, keys: keys, timers: timers, queues: make([][]sharedTimers[K], groups)}
	x.Map = state.NewMap(name, groups, state.Uint8, serde.New("clock", x.own.append, x.own.decode))
	x.KeepInMemory()
	x.WholeGroups() // timers of keys come into the queues of their clocks
	x.Stays(state.SharesClocks)
	x.OnDrop(func(group int) { x.queues[group] = nil })
	return x
}

func (x *sharedClocks[K]) setDelay(delay int64) { x.own.delay = delay }

func (x *sharedClocks[K]) number() int { return x.Len() }

// of returns the number of a key's clock.
func (x *sharedClocks[K]) of(group int, key *K) uint8 {
	x.enc = x.keys.Append(x.enc[:0], key)
	return uint8(exec.SubGroupOf(exec.HashKey(x.enc), len(x.queues), x.n))
}

func (x *sharedClocks[K]) at(group int, key *K) int64 {
	number := x.of(group, key)
	if o := x.Get(group, &number); o != nil {
		return max(x.own.least(o), *x.w)
	}
	return *x.w
}

func (x *sharedClocks[K]) begin(group int, key *K) (now int64) {
	x.group, x.current, x.clock = group, x.of(group, key), noOwns
	if o := x.Get(group, &x.current); o != nil {
		x.clock = *o
	}
	return max(x.own.least(&x.clock), *x.w)
}

func (x *sharedClocks[K]) move(input int, t int64) {
	was := x.clock
	x.own.move(&x.clock, input, t)
	if x.clock != was && max(x.clock[0], x.clock[1]) > *x.w {
		o, _ := x.Upsert(x.group, &x.current)
		*o = x.clock
	}
}

// queue returns the timers of a clock and set.
func (x *sharedClocks[K]) queue(set, group int, number uint8) *timerqueue.Queue[K] {
	if x.queues[group] == nil {
		x.queues[group] = make([]sharedTimers[K], x.n)
	}
	qs := &x.queues[group][number]
	for len(*qs) <= set {
		*qs = append(*qs, timerqueue.New(1, x.keys))
	}
	return (*qs)[set]
}

func (x *sharedClocks[K]) timer(set, group int, key *K, t int64, comes bool) {
	if comes {
		x.queue(set, group, x.of(group, key)).Add(t, 0, *key)
	}
}

func (x *sharedClocks[K]) due() (set int, key *K, t int64, ok bool) {
	if x.queues[x.group] == nil {
		return 0, nil, 0, false
	}
	qs, now := x.queues[x.group][x.current], max(x.own.least(&x.clock), *x.w)
	for {
		var first *timerqueue.Queue[K]
		for i, q := range qs { // of equal times the first set's fire first
			if at, some := q.Peek(); some && at <= now && (first == nil || at < t) {
				first, set, t = q, i, at
			}
		}
		if first == nil {
			return 0, nil, 0, false
		}
		if _, _, x.key, ok = first.Pop(now); ok && x.timers(set).Has(x.group, &x.key, t) {
			return set, &x.key, t, true
		}
	}
}

func (x *sharedClocks[K]) end() {}

func (x *sharedClocks[K]) fired(int, *K, int64, bool) {}

func (x *sharedClocks[K]) drop(w int64, _ *exec.Meter) (done bool) {
	for group, clocks := range x.queues {
		for _, qs := range clocks {
			for _, q := range qs {
				for t, ok := q.Peek(); ok && t <= w; t, ok = q.Peek() {
					q.Pop(w)
				}
			}
		}
		for number := 0; number < x.n && x.Len() > 0; number++ {
			x.current = uint8(number)
			if o := x.Get(group, &x.current); o != nil && max(o[0], o[1]) <= w {
				x.Delete(group, &x.current)
			}
		}
	}
	return true
}
