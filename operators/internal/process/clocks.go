//go:build !nokeyed

package process

import (
	"cmp"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/timerqueue"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
	"tailrace.dev/tailrace/operators/watermark"
)

// keyClocks are clocks of which each key has one.
//
// Invariants:
//
//  1. A key that has a timer of event time has a clock.
//  2. A clock without timers goes when W has reached all that its inputs have said: then it says nothing
//     that W does not say.
type keyClocks[K comparable] struct {
	*state.Map[K, keyClock]
	own ownTime
	// paths are those by which the items of each input come; nil: the clock follows them as they come.
	paths []*chain.Paths
	w     *int64
	// gone has, for each clock that is ahead of W, a time at which W may have reached it.
	gone *timerqueue.Queue[K]
	key  K // a local one would escape, an allocation a timer
	// Of the current item: its key in the table, and its clock.
	group   int
	current *K
	clock   *keyClock
}

// ownTime computes the time of clocks from the items of their inputs.
type ownTime struct {
	inputs int
	delay  int64
}

// owns has, for each input, the greatest time − delay of its items, MinTime before the first.
type owns [2]int64

var noOwns = owns{exec.MinTime, exec.MinTime}

// least returns the time of a clock: the least of its inputs'.
func (x *ownTime) least(o *owns) int64 {
	if x.inputs == 1 {
		return o[0]
	}
	return min(o[0], o[1])
}

// move moves a clock behind an item of an input.
func (x *ownTime) move(o *owns, input int, t int64) {
	if own := t - x.delay; own > o[input] && own <= t { // not if it wraps around
		o[input] = own
	}
}

// append and decode encode a clock.
func (x *ownTime) append(dst []byte, o *owns) []byte {
	for _, own := range o[:x.inputs] {
		dst = serde.AppendInt64(dst, own)
	}
	return dst
}

func (x *ownTime) decode(r *serde.Reader, o *owns) {
	*o = noOwns
	for i := range o[:x.inputs] {
		o[i] = r.Int64()
	}
}

// keyClock is the clock of a key. Only own is state; due is derived from the timers' tables.
type keyClock struct {
	own owns
	// paths has, for each input, how far the key's items have come by each path; nil without paths.
	paths []watermark.Paths
	// check is the time of the key in gone, NoTimer if there is none.
	check int64
	// due are the key's timers, sorted by time and then by set.
	due []dueTimer
}

// dueTimer is a timer of a set: an index in Op.sets, len(Op.sets) for the function's own.
type dueTimer struct {
	t   int64
	set int
}

func (x *keyClocks[K]) newClock() keyClock {
	k := keyClock{own: noOwns, check: watermark.NoTimer}
	if x.paths != nil {
		k.paths = make([]watermark.Paths, x.own.inputs)
		for i := range k.paths {
			k.paths[i] = watermark.NewPaths()
		}
	}
	return k
}

// newest returns the time that W must have reached for the clock to say nothing.
func (k *keyClock) newest() int64 {
	t := max(k.own[0], k.own[1])
	for i := range k.paths {
		t = max(t, k.paths[i].Greatest())
	}
	return t
}

// newKeyClocks returns no clocks, for a task whose watermark is *w.
func newKeyClocks[K comparable](name string, groups int, keys serde.Serde[K], own ownTime, paths []*chain.Paths, w *int64) *keyClocks[K] {
	x := &keyClocks[K]{own: own, paths: paths, w: w, gone: timerqueue.New(groups, keys)}
	typ := "clock of a key"
	if paths != nil {
		typ = "clock of a key by producer"
	}
	x.Map = state.NewMap(name, groups, keys, serde.New(typ, x.appendClock, x.readClock))
	x.KeepInMemory()
	x.WholeGroups() // a clock belongs to the timers of its key
	x.OnDrop(x.gone.DropGroup)
	x.OnRestored(func(group int, key *K, k *keyClock) {
		k.check = k.newest()
		x.gone.Add(k.check, group, *key)
	})
	return x
}

func (x *keyClocks[K]) appendClock(dst []byte, c *keyClock) []byte {
	dst = x.own.append(dst, &c.own)
	for i := range c.paths {
		dst = AppendPaths(dst, &c.paths[i], func(own int64) int64 { return own })
	}
	return dst
}

func (x *keyClocks[K]) readClock(r *serde.Reader, c *keyClock) {
	*c = x.newClock()
	x.own.decode(r, &c.own)
	for i := range c.paths {
		ReadPaths(r, &c.paths[i])
	}
}

func (x *keyClocks[K]) setDelay(delay int64) { x.own.delay = delay }

func (x *keyClocks[K]) number() int { return x.Len() }

func (x *keyClocks[K]) at(group int, key *K) int64 {
	if k := x.Get(group, key); k != nil {
		return max(x.own.least(&k.own), *x.w)
	}
	return *x.w
}

// entry returns the clock of a key, to change, and the table's own copy of the key.
func (x *keyClocks[K]) entry(group int, key *K) (own *K, k *keyClock) {
	own, k, created := x.Entry(group, key)
	if created {
		*k = x.newClock()
	}
	return own, k
}

func (x *keyClocks[K]) begin(group int, key *K) (now int64) {
	x.group = group
	x.current, x.clock = x.entry(group, key)
	return max(x.own.least(&x.clock.own), *x.w)
}

func (x *keyClocks[K]) move(input int, t int64) {
	k := x.clock
	if x.paths != nil {
		p := x.paths[input]
		k.own[input] = max(k.own[input], k.paths[input].Move(p.Current, t, x.own.delay, p.Promised[:]))
	} else {
		x.own.move(&k.own, input, t)
	}
	if newest := k.newest(); newest > *x.w && newest < k.check { // have it looked at then
		k.check = newest
		x.gone.Add(newest, x.group, *x.current)
	}
}

func (x *keyClocks[K]) due() (set int, key *K, t int64, ok bool) {
	k := x.clock
	if len(k.due) == 0 || k.due[0].t > max(x.own.least(&k.own), *x.w) {
		return 0, nil, 0, false
	}
	return k.due[0].set, x.current, k.due[0].t, true
}

func (x *keyClocks[K]) end() { x.release(x.group, x.current, x.clock, *x.w) }

func (x *keyClocks[K]) timer(set, group int, key *K, t int64, comes bool) {
	d := dueTimer{t, set}
	k := x.Get(group, key)
	if k == nil {
		if !comes {
			return
		}
		_, k = x.entry(group, key)
	}
	i, there := slices.BinarySearchFunc(k.due, d, func(a, b dueTimer) int {
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(a.set, b.set))
	})
	switch {
	case comes && !there:
		k.due = slices.Insert(k.due, i, d)
	case !comes && there:
		k.due = slices.Delete(k.due, i, i+1)
	}
}

// release removes the clock of a key that has no timers, if W has reached it.
func (x *keyClocks[K]) release(group int, key *K, k *keyClock, w int64) (did bool) {
	if len(k.due) > 0 || k.newest() > w {
		return false
	}
	x.Delete(group, key)
	return true
}

func (x *keyClocks[K]) fired(group int, key *K, t int64, wall bool) {
	w := *x.w
	if !wall {
		w = max(w, t)
	}
	if k := x.Get(group, key); k != nil {
		x.release(group, key, k, w)
	}
}

func (x *keyClocks[K]) drop(w int64, m *exec.Meter) (done bool) {
	for {
		t, group, key, ok := x.gone.Pop(w)
		if !ok {
			if at, more := x.gone.Peek(); more && at <= w {
				continue // those that were due have moved to another task
			}
			return true
		}
		x.key = key
		k := x.Get(group, &x.key)
		if k == nil || k.check != t {
			continue
		}
		if newest := k.newest(); newest > t {
			k.check = newest
			x.gone.Add(newest, group, x.key)
			continue
		}
		k.check = watermark.NoTimer
		if x.release(group, &x.key, k, t) {
			m.Units++
			if m.Over() {
				return false
			}
		}
	}
}

// UseClocks gives each key of a function a clock, or, if n > 0, each key group n clocks; it is called before
// anything is added to the operator. paths has, for each input of the function, those by which its items
// come, or nil.
func (p *Op[K, Out]) UseClocks(paths []*chain.Paths, delay int64, n int) {
	c := p.call
	own := ownTime{len(paths), delay}
	if paths[0] == nil {
		paths = nil
	}
	if n > 0 {
		p.clocks = newSharedClocks(c.Table("clock"), c.RT.Groups(), n, c.Keys, own, &p.w, func(set int) *state.Timers[K] { return p.set(set).timers })
	} else {
		p.clocks = newKeyClocks(c.Table("clock"), c.RT.Groups(), c.Keys, own, paths, &p.w)
	}
	p.w = exec.MinTime
	if m, ok := c.RT.(exec.Meters); ok {
		p.gauge = exec.NewMetric(exec.MetricValue{Kind: "gauge", Name: "clocks", Labels: []string{"operator"}, Values: []string{c.Name}})
		m.Meter(p.gauge)
	}
	c.byKey = true
	c.tabs = slices.Insert(c.tabs, 0, exec.StateTable(p.clocks)) // restored before the timers
}

// Switch implements chain.Switched.
func (p *Op[K, Out]) Switch(moves bool, delay int64) {
	if p.clocks != nil {
		p.still = !moves
		p.clocks.setDelay(delay)
	}
}

// Clocks implements chain.Switched.
func (p *Op[K, Out]) Clocks() int {
	if p.clocks == nil {
		return 0
	}
	return p.clocks.number()
}

// keyed returns f for the items of an input, for a function whose keys have clocks. It is called with
// each item of a batch.
func keyed[K comparable, In, Out any](p *Op[K, Out], input int, f func(v *In) error) chain.Emit[item.KV[K, In]] {
	c, x := p.call, p.clocks
	return func(b *item.Batch[item.KV[K, In]]) error {
		c.Group = b.Group
		for i := range b.Items {
			c.Key, c.Time = b.Items[i].Key, b.Times[i]
			c.W, c.Floor = x.begin(c.Group, &c.Key), p.w
			t := c.Time // timers change it
			if err := f(&b.Items[i].Value); err != nil {
				return err
			}
			if c.Failed != nil {
				return c.Failed
			}
			if !p.still {
				x.move(input, t)
			}
			if err := p.fireDue(); err != nil {
				return err
			}
			x.end()
		}
		return c.Flush()
	}
}

// watch tells the clocks of the timers that come and go.
func (p *Op[K, Out]) watch() {
	for i := range len(p.sets) + 1 {
		p.set(i).timers.Watch(func(group int, key *K, t int64, comes bool) { p.clocks.timer(i, group, key, t, comes) })
	}
}

// fireDue fires the timers that are due by the clock of the current item.
func (p *Op[K, Out]) fireDue() error {
	c := p.call
	for {
		i, key, t, ok := p.clocks.due()
		if !ok {
			return nil
		}
		set := p.set(i)
		c.Key, c.Time, c.Floor = *key, t, p.w
		set.timers.Delete(c.Group, &c.Key, t) // which tells the clocks
		set.fire(t, &p.none)
		if c.Failed != nil {
			return c.Failed
		}
	}
}

// set returns a set of timers by its index.
func (p *Op[K, Out]) set(i int) timerSet[K] {
	if i < len(p.sets) {
		return p.sets[i]
	}
	return timerSet[K]{p.call.Event, p.onEvent, false}
}
