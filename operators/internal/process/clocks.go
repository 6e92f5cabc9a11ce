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

// clocks are the clocks of the keys of a function (package watermark), in place of the watermark W of
// the task. The function sees a key's time (Call.W), so it is logged as it is, and not only up to a
// boundary.
//
// Behind an item that moves the clock of its key, the key's timers that are due fire, in the order of
// time. The others fire when W reaches them: the queues of the timers are as without clocks, and do not
// find a timer again that has fired.
//
// Invariants:
//
//  1. A key that has a timer of event time has a clock.
//  2. A clock without timers goes when W has reached it: then it says nothing that W does not say.
type clocks[K comparable] struct {
	delay  int64
	inputs int
	w      int64
	table  *state.Map[K, keyClock]
	// gone has, for each clock that is ahead of W, a time at which W may have reached it.
	gone  *timerqueue.Queue[K]
	key   K            // a local one would escape, an allocation a timer
	none  exec.Meter   // of what fires behind items: it belongs to the item's unit
	gauge *exec.Metric // of the number of clocks; may be nil
}

// keyClock is the clock of a key. Only own is state; due is derived from the timers' tables.
type keyClock struct {
	// own has, for each input, the greatest time − delay of its items, MinTime before the first.
	own [2]int64
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

func keyClockSerde(inputs int) serde.Serde[keyClock] {
	return serde.New("clock of a key",
		func(dst []byte, c *keyClock) []byte {
			for _, own := range c.own[:inputs] {
				dst = serde.AppendInt64(dst, own)
			}
			return dst
		},
		func(r *serde.Reader, c *keyClock) {
			*c = newKeyClock()
			for i := range c.own[:inputs] {
				c.own[i] = r.Int64()
			}
		})
}

func newKeyClock() keyClock {
	return keyClock{own: [2]int64{exec.MinTime, exec.MinTime}, check: watermark.NoTimer}
}

// UseClocks gives each key of a function of this number of inputs a clock; it is called before anything
// is added to the operator.
func (p *Op[K, Out]) UseClocks(inputs int, delay int64) {
	c := p.call
	x := &clocks[K]{
		delay: delay, inputs: inputs, w: exec.MinTime,
		table: state.NewMap(c.Table("clock"), c.RT.Groups(), c.Keys, keyClockSerde(inputs)),
		gone:  timerqueue.New(c.RT.Groups(), c.Keys),
	}
	x.table.KeepInMemory()
	x.table.OnDrop(x.gone.DropGroup)
	x.table.OnRestored(func(group int, key *K, k *keyClock) {
		k.check = x.own(k)
		x.gone.Add(k.check, group, *key)
	})
	if m, ok := c.RT.(exec.Meters); ok {
		x.gauge = exec.NewMetric(exec.MetricValue{Kind: "gauge", Name: "clocks", Labels: []string{"operator"}, Values: []string{c.Name}})
		m.Meter(x.gauge)
	}
	p.clocks, c.byKey = x, true
	c.tabs = slices.Insert(c.tabs, 0, exec.StateTable(x.table)) // restored before the timers
}

// own returns the time of a key's own clock: the least of its inputs'.
func (x *clocks[K]) own(k *keyClock) int64 {
	if x.inputs == 1 {
		return k.own[0]
	}
	return min(k.own[0], k.own[1])
}

// at returns the event time of a key.
func (x *clocks[K]) at(group int, key *K) int64 {
	if k := x.table.Get(group, key); k != nil {
		return max(x.own(k), x.w)
	}
	return x.w
}

// clock returns the clock of a key, to change, and the table's own copy of the key.
func (x *clocks[K]) clock(group int, key *K) (own *K, k *keyClock) {
	own, k, created := x.table.Entry(group, key)
	if created {
		*k = newKeyClock()
	}
	return own, k
}

// watch makes a clock be looked at when W may have reached it.
func (x *clocks[K]) watch(group int, key *K, k *keyClock) {
	if own := x.own(k); own > x.w && own < k.check {
		k.check = own
		x.gone.Add(own, group, *key)
	}
}

// timer is told of a timer of a set that has come or gone.
func (x *clocks[K]) timer(set, group int, key *K, t int64, comes bool) {
	d := dueTimer{t, set}
	k := x.table.Get(group, key)
	if k == nil {
		if !comes {
			return
		}
		_, k = x.clock(group, key)
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
func (x *clocks[K]) release(group int, key *K, k *keyClock, w int64) (did bool) {
	if len(k.due) > 0 || x.own(k) > w {
		return false
	}
	x.table.Delete(group, key)
	return true
}

// fired is called behind a timer of a key, which fired for W or for the wall clock.
func (x *clocks[K]) fired(group int, key *K, t int64, wall bool) {
	w := x.w
	if !wall {
		w = max(w, t)
	}
	if k := x.table.Get(group, key); k != nil {
		x.release(group, key, k, w)
	}
}

// drop removes the clocks that w has reached.
func (x *clocks[K]) drop(w int64, m *exec.Meter) (done bool) {
	for {
		t, group, key, ok := x.gone.Pop(w)
		if !ok {
			if at, more := x.gone.Peek(); more && at <= w {
				continue // those that were due have moved to another task
			}
			break
		}
		x.key = key
		k := x.table.Get(group, &x.key)
		if k == nil || k.check != t {
			continue
		}
		if k.check = watermark.NoTimer; x.own(k) > t {
			k.check = x.own(k)
			x.gone.Add(k.check, group, x.key)
			continue
		}
		if x.release(group, &x.key, k, t) {
			m.Units++
			if m.Over() {
				return false
			}
		}
	}
	if x.gauge != nil {
		x.gauge.Set(float64(x.table.Len()))
	}
	return true
}

// keyed returns f for the items of an input, for a function whose keys have clocks. It is called with
// each item of a batch.
func keyed[K comparable, In, Out any](p *Op[K, Out], input int, f func(v *In) error) chain.Emit[item.KV[K, In]] {
	c, x := p.call, p.clocks
	return func(b *item.Batch[item.KV[K, In]]) error {
		c.Group = b.Group
		for i := range b.Items {
			c.Key, c.Time = b.Items[i].Key, b.Times[i]
			key, k := x.clock(c.Group, &c.Key)
			c.W, c.Floor = max(x.own(k), x.w), x.w
			t := c.Time // timers change it
			if err := f(&b.Items[i].Value); err != nil {
				return err
			}
			if c.Failed != nil {
				return c.Failed
			}
			if own := t - x.delay; own > k.own[input] && own <= t { // not if it wraps around
				k.own[input] = own
			}
			x.watch(c.Group, key, k)
			if err := p.fireKey(k); err != nil {
				return err
			}
			x.release(c.Group, key, k, x.w)
		}
		return c.Flush()
	}
}

// fireKey fires the timers of the current key that are due by its time.
func (p *Op[K, Out]) fireKey(k *keyClock) error {
	c, x := p.call, p.clocks
	now := max(x.own(k), x.w)
	for len(k.due) > 0 && k.due[0].t <= now {
		d := k.due[0]
		set := p.set(d.set)
		set.timers.Delete(c.Group, &c.Key, d.t) // and k.due with it
		c.Time, c.Floor = d.t, x.w
		set.fire(d.t, &x.none)
		if c.Failed != nil {
			return c.Failed
		}
	}
	return nil
}

// set returns a set of timers by its index.
func (p *Op[K, Out]) set(i int) timerSet[K] {
	if i < len(p.sets) {
		return p.sets[i]
	}
	return timerSet[K]{p.call.Event, p.onEvent, false}
}
