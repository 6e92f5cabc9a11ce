package operators

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Context is what a process function has besides the item: the key it is called
// for, time, timers, and a way to emit. State is reached through handles made
// when the function was set up (NewValue, NewMap, NewList); like timers they are those
// of the current key.
type Context[K comparable, Out any] struct {
	call process.Call[K, Out]
	op   *identity
	// chain is set while it is being built, and declared has the side outputs that the setup has
	// made.
	chain    *chain.Chain
	declared []any
}

// Key returns the current key. It may alias the item.
func (c *Context[K, Out]) Key() K { return c.call.Key }

// Time returns the time of the current item; in a timer, the timer's.
func (c *Context[K, Out]) Time() int64 { return c.call.Time }

// Watermark returns the current event time: nothing still to come has a lower
// one. With WatermarkPer(Key) it is that of the current key. While event-time timers fire it is what
// it was before. With InOrder it is the time of the current item or timer.
func (c *Context[K, Out]) Watermark() int64 { return c.call.EventTime() }

// Now returns the wall clock in ms. It does not go back, not even when the task moves to another
// machine.
func (c *Context[K, Out]) Now() int64 { return c.call.RT.Now() }

// Random returns 64 random bits.
func (c *Context[K, Out]) Random() uint64 { return c.call.RT.Random() }

// Late counts the current item as one that came too late to count, and puts it into the
// stream of late items, if the job takes that (see the function Late).
func (c *Context[K, Out]) Late() { c.call.Late() }

// Count adds to a named counter of the job.
func (c *Context[K, Out]) Count(name string, n int64) { c.call.RT.Count(name, n) }

// Emit emits a result under the current key. Its time is t, or the watermark if
// that is later: a result is never late. v may alias the item, and state until
// it is changed.
func (c *Context[K, Out]) Emit(v Out, t int64) { c.call.Emit(v, t) }

// SetEventTimer asks for OnEventTimer for the current key when the watermark
// reaches t; if it has, when event time advances next. Setting a timer that is
// set already has no effect. With InOrder a timer that is not behind the current time is one a
// millisecond behind it: items of one time come without a timer in between.
func (c *Context[K, Out]) SetEventTimer(t int64) { c.call.SetEventTimer(t) }

// DeleteEventTimer removes a timer, if it is set.
func (c *Context[K, Out]) DeleteEventTimer(t int64) { c.call.DeleteEventTimer(t) }

// SetWallTimer asks for OnWallTimer for the current key when the wall clock
// reaches t (ms), to the next tick.
func (c *Context[K, Out]) SetWallTimer(t int64) { c.call.SetWallTimer(t) }

// DeleteWallTimer removes a timer, if it is set.
func (c *Context[K, Out]) DeleteWallTimer(t int64) { c.call.DeleteWallTimer(t) }

// Timers are the timer callbacks of a process function; nil is allowed where no
// timer is set.
type Timers struct {
	// OnEvent is called when a SetEventTimer is due, OnWall for a SetWallTimer.
	// The timer has been deleted by then.
	OnEvent func(t int64)
	OnWall  func(t int64)
	// OnTime is called with InOrder, for a key behind its last item of each time; also if
	// the items of that time were skipped, because they fail.
	OnTime func(t int64)
}

// Handler is a process function of one input, set up for one task.
type Handler[In any] struct {
	Item func(v *In)
	// Late, if set, is called with InOrder for an item that comes behind the watermark,
	// and so out of order. It has been counted as late.
	Late func(v *In)
	Timers
}

// Handler2 is a process function of two inputs that are partitioned alike.
type Handler2[L, R any] struct {
	Left  func(v *L)
	Right func(v *R)
	// LateLeft and LateRight are Handler.Late of the two sides.
	LateLeft  func(v *L)
	LateRight func(v *R)
	Timers
}

// Process puts a function with keyed state and timers on a keyed stream. setup
// is called for each task, and once when the plan is made; it makes the state handles and
// returns the function.
// Nothing may be remembered from call to call but in these handles. Results keep
// the key.
//
// Items come as they arrive: in the order of their partition, those of several partitions
// interleaved in some way. With InOrder they come in the order of their times.
func Process[K comparable, In, Out any](in KeyedStream[K, In], name string, setup func(c *Context[K, Out]) Handler[In], opts ...Option) KeyedStream[K, Out] {
	j := in.n.job
	j.claim("process function", name)
	o := j.options(fmt.Sprintf("process function %q", name), opts, "InOrder")
	return processOne(in, j.identify(in.n.stage, "process", name), o, setup)
}

func processOne[K comparable, In, Out any](in KeyedStream[K, In], id *identity, o options, setup func(c *Context[K, Out]) Handler[In]) KeyedStream[K, Out] {
	out := newNode[KV[K, Out]](in.n.job, in.n.stage, nil)
	out.op, out.origin = id, in.n.behind()
	id.process = true
	late := addLate(out, in.n, in.keys, in.vals)
	if o.inOrder {
		id.shape = "in order"
		needSerde(in.n.job, id, in.vals)
	}
	in.n.subs = append(in.n.subs, func(c *chain.Chain) chain.Emit[KV[K, In]] {
		inputs := []*origin{&in.n.origin}
		if o.timeless {
			inputs = nil
		}
		ctx, p := newProcess(c, out, in.keys, inputs...)
		call := &ctx.call
		if !o.inOrder {
			h := setup(ctx)
			ctx.built(p, h.Timers)
			return process.Input(p, 0, process.SendLate(call, lateBuffer(c, late), h.Item))
		}
		p.InOrder()
		var h Handler[In]
		list := process.NewWaiting(p, "waiting", in.vals, func(v *In) { h.Item(v) })
		h = setup(ctx)
		ctx.built(p, h.Timers)
		out := lateBuffer(c, late)
		h.Item = process.SendLate(call, out, h.Item)
		return process.OrderedInput(p, 0, list, process.SendLate(call, out, process.CountLate(call, h.Late)))
	})
	return keyed(out, in.keys, nil)
}

// Process2 puts one function on two keyed streams; it sees both inputs of a key
// with the same state. With InOrder it sees them as one, in the order of time; of items
// of one time those of the right side come first.
func Process2[K comparable, L, R, Out any](left KeyedStream[K, L], right KeyedStream[K, R], name string, setup func(c *Context[K, Out]) Handler2[L, R], opts ...Option) KeyedStream[K, Out] {
	o := left.n.job.options(fmt.Sprintf("process function %q", name), opts, "InOrder")
	return process2(left, right, name, sides{o.inOrder, o.inOrder}, setup)
}

// sides says which inputs of a function are held back until they can be passed on in order.
type sides struct{ left, right bool }

func process2[K comparable, L, R, Out any](left KeyedStream[K, L], right KeyedStream[K, R], name string, ordered sides, setup func(c *Context[K, Out]) Handler2[L, R]) KeyedStream[K, Out] {
	j := left.n.job
	sameJob(j, right.n.job, name)
	sameKeys(j, fmt.Sprintf("%q", name), left.keys, right.keys)
	j.sameGrain(fmt.Sprintf("%q", name), &left.n.origin, &right.n.origin)
	j.sameGroups(fmt.Sprintf("%q", name), left.n.stage, right.n.stage)
	j.claim("process function", name)
	st := j.unite(left.n.stage, right.n.stage, fmt.Sprintf("%q", name))
	out := newNode[KV[K, Out]](j, st, nil)
	out.op, out.origin = j.identify(st, "process", name), left.n.or(right.n.origin).behind()
	out.op.process = true
	lateLeft, lateRight := addLate(out, left.n, left.keys, left.vals), addLate(out, right.n, right.keys, right.vals)
	if ordered.left {
		out.op.shape = "left in order"
		needSerde(j, out.op, left.vals)
	}
	if ordered.right {
		out.op.shape += ", right in order"
		needSerde(j, out.op, right.vals)
	}
	type both struct {
		left  chain.Emit[KV[K, L]]
		right chain.Emit[KV[K, R]]
	}
	opID := j.nextID()
	build := func(c *chain.Chain) both {
		return chain.Once(c, opID, func() both {
			ctx, p := newProcess(c, out, left.keys, &left.n.origin, &right.n.origin)
			call := &ctx.call
			var h Handler2[L, R]
			var ls *state.List[K, L]
			var rs *state.List[K, R]
			if ordered.left || ordered.right {
				p.InOrder()
			}
			if ordered.right {
				rs = process.NewWaiting(p, "waiting-right", right.vals, func(v *R) { h.Right(v) })
			}
			if ordered.left {
				ls = process.NewWaiting(p, "waiting-left", left.vals, func(v *L) { h.Left(v) })
			}
			h = setup(ctx)
			ctx.built(p, h.Timers)
			lateL, lateR := lateBuffer(c, lateLeft), lateBuffer(c, lateRight)
			h.Left, h.Right = process.SendLate(call, lateL, h.Left), process.SendLate(call, lateR, h.Right)
			b := both{left: process.Input(p, 0, h.Left), right: process.Input(p, 1, h.Right)}
			if ordered.left {
				b.left = process.OrderedInput(p, 0, ls, process.SendLate(call, lateL, process.CountLate(call, h.LateLeft)))
			}
			if ordered.right {
				b.right = process.OrderedInput(p, 1, rs, process.SendLate(call, lateR, process.CountLate(call, h.LateRight)))
			}
			return b
		})
	}
	left.n.subs = append(left.n.subs, func(c *chain.Chain) chain.Emit[KV[K, L]] { return build(c).left })
	right.n.subs = append(right.n.subs, func(c *chain.Chain) chain.Emit[KV[K, R]] { return build(c).right })
	return keyed(out, left.keys, nil)
}

// needSerde requires a serde, because the items of an input are kept.
func needSerde[T any](j *Job, id *identity, sd serde.Serde[T]) {
	if sd == nil {
		j.errorf("%q: items (%s) are held back until their time has come, and have no serde; give one with With", id.uid, item.TypeName[T]())
	}
}

// newProcess returns the operator of a function, and its context. inputs are those that move
// the clocks of keys; none: the function has the watermark of the task.
func newProcess[K comparable, Out any](c *chain.Chain, out *node[KV[K, Out]], keys serde.Serde[K], inputs ...*origin) (*Context[K, Out], *process.Op[K, Out]) {
	ctx := &Context[K, Out]{op: out.op, chain: c}
	p := process.New(&ctx.call, c, out.id, out.op.name, keys, out.emitter(c))
	if g := out.grain; g.PerKey() && len(inputs) > 0 {
		var paths []*chain.Paths
		for _, in := range inputs {
			paths = append(paths, chain.NewPaths(c, in.paths))
		}
		p.UseClocks(paths, g.Delay, g.Clocks)
	}
	return ctx, p
}

// built is called when the function has been set up.
func (c *Context[K, Out]) built(p *process.Op[K, Out], ts Timers) {
	for _, s := range c.op.sideNames {
		if !slices.Contains(c.declared, s.side) {
			c.chain.Fail(fmt.Errorf("%q has no side output %q: its setup does not call SideOutput for it", c.call.Name, s.name))
		}
	}
	c.chain, c.declared = nil, nil
	p.Built(process.Timers(ts))
}

// Value is a handle on one value of the current key.
type Value[V any] interface {
	// Get returns the value, to read, or nil if there is none.
	Get() *V
	// Update returns the value, to change in place, or nil; Upsert creates a zero one. What is
	// stored in it must not alias items. The pointer is valid until the call of the function ends.
	Update() *V
	Upsert() *V
	// Put stores a clone of *v.
	Put(v *V)
	Delete()
}

// NewValue makes state of one value a key; the name is unique in the function.
func NewValue[V any, K comparable, Out any](c *Context[K, Out], name string, sd serde.Serde[V], opts ...StateOption) Value[V] {
	return process.NewEndingValue(&c.call, name, item.State(sd, c.call.Name, name, c.chain.Fail), ttlOf(c, name, opts))
}

// List is a handle on any number of values of the current key, each with a
// time, in the order of (time, arrival).
type List[V any] interface {
	// All returns the values; valid until the list is changed.
	All() []Elem[V]
	// Add adds a clone of *v.
	Add(time int64, v *V)
	// DropBefore removes the values whose time is < t.
	DropBefore(t int64)
	Delete()
}

// NewList makes state of a list a key; the name is unique in the function. With TTL(d) a
// value of the list ends d after its time, the one that it was added with.
func NewList[V any, K comparable, Out any](c *Context[K, Out], name string, sd serde.Serde[V], opts ...StateOption) List[V] {
	sd = item.State(sd, c.call.Name, name, c.chain.Fail)
	if ttl := ttlOf(c, name, opts); ttl > 0 {
		return process.NewEndingList(&c.call, name, sd, ttl)
	}
	return process.NewList(&c.call, name, sd)
}
