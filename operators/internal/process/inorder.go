package process

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// inOrder holds back the items of an operator until no earlier one can come, and passes them on in
// the order of (time, input, arrival), key by key: what the operator then does is a function of the
// items and their times, and not of when they arrived.
//
// The items of a key wait in a list for each input. One timer a key is set, for the earliest of
// them: at the watermark t + 1 nothing of time t can come any more.
type inOrder[K comparable] struct {
	timers *state.Timers[K]
	inputs []waiting[K] // of equal times the first input's items go first
	// onTime, if set, is called after the last item of a key and time.
	onTime func(t int64)
}

// waiting is the list of an input's held items.
type waiting[K comparable] interface {
	// first returns the time of a key's first item; ok is false if there is none.
	first(group int, key *K) (t int64, ok bool)
	// deliver passes that item on and removes it; drop only removes it.
	deliver(group int, key *K)
	drop(group int, key *K)
	// show describes that item, as text for people and encoded to identify it.
	show(group int, key *K) (text string, data []byte)
}

type waitingItems[K comparable, In any] struct {
	list *state.List[K, In]
	vals serde.Serde[In]
	item func(v *In)
}

func (x *waitingItems[K, In]) first(group int, key *K) (int64, bool) {
	if all := x.list.Get(group, key); len(all) > 0 {
		return all[0].Time, true
	}
	return 0, false
}

func (x *waitingItems[K, In]) deliver(group int, key *K) {
	x.item(&x.list.Get(group, key)[0].Value)
	x.drop(group, key)
}

func (x *waitingItems[K, In]) drop(group int, key *K) { x.list.DropFirst(group, key, 1) }

func (x *waitingItems[K, In]) show(group int, key *K) (text string, data []byte) {
	if all := x.list.Get(group, key); len(all) > 0 {
		return chain.Show(all[0].Value), chain.Encoded(x.vals, &all[0].Value)
	}
	return "", nil
}

// Passed returns the watermark at which nothing of time t can come any more.
func Passed(t int64) int64 {
	if t == exec.MaxTime {
		return t
	}
	return t + 1
}

// next returns the input whose item of a key goes next, and its time.
func (o *inOrder[K]) next(group int, key *K) (in waiting[K], t int64) {
	for _, x := range o.inputs {
		if at, ok := x.first(group, key); ok && (in == nil || at < t) {
			in, t = x, at
		}
	}
	return in, t
}

// CountLate returns the function that an ordered input calls with an item that comes behind the
// watermark: it counts the item and calls f, if that is set.
func CountLate[K comparable, In, Out any](c *Call[K, Out], f func(v *In)) func(v *In) {
	return func(v *In) {
		c.Late()
		if f != nil {
			f(v)
		}
	}
}

// OrderedInput is Input for an input whose items are held back. late is called with an item
// that comes behind the watermark. number is that of the input, from 0.
func OrderedInput[K comparable, In, Out any](p *Op[K, Out], number int, list *state.List[K, In], late func(v *In)) chain.Emit[item.KV[K, In]] {
	c, o := p.call, p.order
	take := func(v *In) error {
		if c.Time < c.W {
			late(v)
			return nil
		}
		in, first := o.next(c.Group, &c.Key)
		if _, err := list.Add(c.Group, &c.Key, c.Time, v); err != nil {
			return err
		}
		if in == nil || c.Time < first {
			if in != nil {
				o.timers.Delete(c.Group, &c.Key, Passed(first))
			}
			o.timers.Set(c.Group, &c.Key, Passed(c.Time))
		}
		return nil
	}
	if p.clocks != nil {
		return keyed(p, number, take)
	}
	return func(b *item.Batch[item.KV[K, In]]) error {
		c.Group, c.Floor = b.Group, c.W
		for i := range b.Items {
			c.Key, c.Time = b.Items[i].Key, b.Times[i]
			if err := take(&b.Items[i].Value); err != nil {
				return err
			}
			if c.Failed != nil {
				return c.Failed
			}
		}
		return c.Flush()
	}
}

// InOrder makes the operator hold items back; NewWaiting adds its inputs.
func (p *Op[K, Out]) InOrder() {
	c := p.call
	p.order = &inOrder[K]{timers: state.NewTimers(c.Table("waiting-timers"), c.RT.Groups(), c.Keys)}
	c.ordered = true
	c.AddTable(p.order.timers.Table())
	p.sets = append(p.sets, timerSet[K]{p.order.timers, p.deliver, false})
}

// NewWaiting adds an input whose items are held back until f may be called with them.
func NewWaiting[K comparable, In, Out any](p *Op[K, Out], name string, vals serde.Serde[In], f func(v *In)) *state.List[K, In] {
	c := p.call
	list := state.NewList(c.Table(name), c.RT.Groups(), c.Keys, vals)
	c.AddTable(list)
	p.order.inputs = append(p.order.inputs, &waitingItems[K, In]{list, vals, f})
	return list
}

// deliver passes on the items of the current key that the timer t was set for.
func (p *Op[K, Out]) deliver(t int64, m *exec.Meter) (done bool) {
	c, o := p.call, p.order
	in, at := o.next(c.Group, &c.Key)
	if o.onTime != nil && (in == nil || Passed(at) > t) { // postponed, see below
		p.callOnTime(t-1, m)
		m.Units++
	}
	for in != nil && Passed(at) <= t && c.Failed == nil {
		c.Time, c.Floor = at, at
		p.firing, p.item = "item", in
		avoided := m.Avoids(p)
		if avoided {
			in.drop(c.Group, &c.Key)
		} else {
			in.deliver(c.Group, &c.Key)
		}
		var next int64
		in, next = o.next(c.Group, &c.Key)
		if o.onTime != nil && c.Failed == nil && (in == nil || next != at) {
			if avoided && Passed(at) < exec.MaxTime {
				// If this call failed too, it would undo the skipping of the item, and only one of
				// the two can be skipped at a time. So it runs after the commit that follows the
				// item: by a timer for which no item waits.
				o.timers.Set(c.Group, &c.Key, Passed(at))
			} else {
				p.callOnTime(at, m)
			}
		}
		at = next
		m.Units++
		if c.Failed != nil || m.Over() {
			break
		}
	}
	if in != nil {
		o.timers.Set(c.Group, &c.Key, Passed(at))
	}
	return !m.Over()
}

// callOnTime calls OnTime for the current key, after its last item of time t.
func (p *Op[K, Out]) callOnTime(t int64, m *exec.Meter) {
	c := p.call
	c.Time, c.Floor = t, t
	p.firing, p.item = "OnTime", nil
	if !m.Avoids(p) {
		p.order.onTime(t)
	}
}
