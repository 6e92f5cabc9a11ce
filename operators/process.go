package operators

import (
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Context is what a process function has besides the item: the key it is called
// for, time, timers, and a way to emit. State is reached through handles made
// when the function was set up (NewValue, NewMap, NewList); like timers they are those
// of the current key.
type Context[K comparable, Out any] struct {
	rt    Runtime
	keys  serde.Serde[K]
	out   *buffer[KV[K, Out]]
	group int
	key   K
	time  int64
	w     int64
	// floor is the least time of a result: w, or the current time of a function that receives its
	// items in order.
	floor   int64
	ordered bool

	tabs   []exec.StateTable
	event  *state.Timers[K]
	wall   *state.Timers[K]
	failed error
	name   string // of the operator: its tables begin with it

	chain *chain // while it is being built
	op    *identity
	id    int // of the operator's result
	// wallCall: a timer of the wall clock is being called.
	wallCall bool
	onStand  func() // called when the state has been restored; may be nil
	// sides are the outputs besides out; declared the side outputs that the setup has made.
	sides    []sideBuffer
	declared []any
	onLate   func() // puts the current item into the stream of late ones; nil: the job does not use that
}

// sideBuffer is a buffer of any type.
type sideBuffer interface{ flush() error }

// flush passes on what was emitted.
func (c *Context[K, Out]) flush() error {
	for _, s := range c.sides {
		if err := s.flush(); err != nil {
			return err
		}
	}
	return c.out.flush()
}

// Key returns the current key. It may alias the item.
func (c *Context[K, Out]) Key() K { return c.key }

// Time returns the time of the current item; in a timer, the timer's.
func (c *Context[K, Out]) Time() int64 { return c.time }

// Watermark returns the current event time: nothing still to come has a lower
// one. While event-time timers fire it is what it was before. With InOrder it is the time
// of the current item or timer.
func (c *Context[K, Out]) Watermark() int64 { return c.floor }

// Now returns the wall clock in ms. It does not go back, not even when the task moves to another
// machine.
func (c *Context[K, Out]) Now() int64 { return c.rt.Now() }

// Random returns 64 random bits.
func (c *Context[K, Out]) Random() uint64 { return c.rt.Random() }

// Late counts the current item as one that came too late to count, and puts it into the
// stream of late items, if the job takes that (see the function Late).
func (c *Context[K, Out]) Late() {
	c.rt.Late(1)
	if c.onLate != nil {
		c.onLate()
	}
}

// Count adds to a named counter of the job.
func (c *Context[K, Out]) Count(name string, n int64) { c.rt.Count(name, n) }

// Emit emits a result under the current key. Its time is t, or the watermark if
// that is later: a result is never late. v may alias the item, and state until
// it is changed.
func (c *Context[K, Out]) Emit(v Out, t int64) {
	if c.failed == nil {
		c.failed = c.out.add(c.group, KV[K, Out]{c.key, v}, max(t, c.floor))
	}
}

// SetEventTimer asks for OnEventTimer for the current key when the watermark
// reaches t; at once, when event time goes on next, if it has. A timer that is
// set already is one. With InOrder a timer that is not behind the current time is one a
// millisecond behind it: items of one time come without a timer in between.
func (c *Context[K, Out]) SetEventTimer(t int64) {
	if c.ordered {
		t = max(t, passed(c.floor))
	}
	c.event.Set(c.group, &c.key, t)
}

// DeleteEventTimer removes a timer, if it is set.
func (c *Context[K, Out]) DeleteEventTimer(t int64) { c.event.Delete(c.group, &c.key, t) }

// SetWallTimer asks for OnWallTimer for the current key when the wall clock
// reaches t (ms), to the next tick.
func (c *Context[K, Out]) SetWallTimer(t int64) { c.wall.Set(c.group, &c.key, t) }

// DeleteWallTimer removes a timer, if it is set.
func (c *Context[K, Out]) DeleteWallTimer(t int64) { c.wall.Delete(c.group, &c.key, t) }

func (c *Context[K, Out]) fail(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

func (c *Context[K, Out]) table(name string) string { return c.name + "." + name }

// Timers are the timer callbacks of a process function; nil is allowed where no
// timer is set.
type Timers struct {
	// OnEvent is called when a SetEventTimer is due, OnWall for a SetWallTimer.
	// The timer has been deleted by then.
	OnEvent func(t int64)
	OnWall  func(t int64)
	// OnTime is called with InOrder, for a key behind its last item of each time; also if
	// the items of that time were passed over, because they fail.
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
	return process(in, j.identify(in.n.stage, "process", name), o, setup)
}

func process[K comparable, In, Out any](in KeyedStream[K, In], id *identity, o options, setup func(c *Context[K, Out]) Handler[In]) KeyedStream[K, Out] {
	out := newNode[KV[K, Out]](in.n.job, in.n.stage, nil)
	out.op, out.varies = id, in.n.varies
	id.process = true
	late := addLate(out, in.n, in.keys, in.vals)
	if o.inOrder {
		id.shape = "in order"
		needSerde(in.n.job, id, in.vals)
	}
	in.n.subs = append(in.n.subs, func(c *chain) emit[KV[K, In]] {
		p := newProcess(c, out, in.keys)
		c.add(out.id, p)
		if !o.inOrder {
			h := setup(p.ctx)
			p.built(c)
			p.timers = h.Timers
			return processInput(p, sendLate(p.ctx, lateBuffer(c, late), h.Item))
		}
		p.orderBy(c.rt, in.keys)
		var h Handler[In]
		list := newWaiting(p, "waiting", in.vals, func(v *In) { h.Item(v) })
		h = setup(p.ctx)
		p.built(c)
		p.timers, p.order.onTime = h.Timers, h.OnTime
		out := lateBuffer(c, late)
		h.Item = sendLate(p.ctx, out, h.Item)
		return orderedInput(p, list, sendLate(p.ctx, out, countLate(p.ctx, h.Late)))
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
	j.claim("process function", name)
	st := j.unite(left.n.stage, right.n.stage, fmt.Sprintf("%q", name))
	out := newNode[KV[K, Out]](j, st, nil)
	out.op, out.varies = j.identify(st, "process", name), cmp.Or(left.n.varies, right.n.varies)
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
		p     *processOp[K, Out]
		left  emit[KV[K, L]]
		right emit[KV[K, R]]
	}
	opID := j.nextID()
	build := func(c *chain) both {
		return once(c, opID, func() both {
			p := newProcess(c, out, left.keys)
			c.add(out.id, p)
			var h Handler2[L, R]
			var ls *state.List[K, L]
			var rs *state.List[K, R]
			if ordered.left || ordered.right {
				p.orderBy(c.rt, left.keys)
			}
			if ordered.right {
				rs = newWaiting(p, "waiting-right", right.vals, func(v *R) { h.Right(v) })
			}
			if ordered.left {
				ls = newWaiting(p, "waiting-left", left.vals, func(v *L) { h.Left(v) })
			}
			h = setup(p.ctx)
			p.built(c)
			p.timers = h.Timers
			lateL, lateR := lateBuffer(c, lateLeft), lateBuffer(c, lateRight)
			h.Left, h.Right = sendLate(p.ctx, lateL, h.Left), sendLate(p.ctx, lateR, h.Right)
			b := both{p: p, left: processInput(p, h.Left), right: processInput(p, h.Right)}
			if ordered.left || ordered.right {
				p.order.onTime = h.OnTime
			}
			if ordered.left {
				b.left = orderedInput(p, ls, sendLate(p.ctx, lateL, countLate(p.ctx, h.LateLeft)))
			}
			if ordered.right {
				b.right = orderedInput(p, rs, sendLate(p.ctx, lateR, countLate(p.ctx, h.LateRight)))
			}
			return b
		})
	}
	left.n.subs = append(left.n.subs, func(c *chain) emit[KV[K, L]] { return build(c).left })
	right.n.subs = append(right.n.subs, func(c *chain) emit[KV[K, R]] { return build(c).right })
	return keyed(out, left.keys, nil)
}

// needSerde requires a serde, because the items of an input are kept.
func needSerde[T any](j *Job, id *identity, sd serde.Serde[T]) {
	if sd == nil {
		j.errorf("%q: items (%s) are held back until their time has come, and have no serde; give one with With", id.uid, typeName[T]())
	}
}

type processOp[K comparable, Out any] struct {
	ctx    *Context[K, Out]
	timers Timers
	order  *inOrder[K] // nil: items are passed on as they come
	// sets are the timers besides the function's own. Of two that are due at the same
	// time those of the first set fire first, and those of the function last.
	sets []timerSet[K]
	// firing is what the call of advance or tick that goes on, or was the last, is at, ""
	// if it has fired nothing: a timer of ctx's key and time, or item, which has waited.
	firing string
	item   waiting[K]
}

// timerSet is timers and what they are for: fire is called for the current key, with the
// timer's time, and says whether all has been done; if not, it has set the timer again.
type timerSet[K comparable] struct {
	timers *state.Timers[K]
	fire   func(t int64, m *exec.Meter) (done bool)
}

func newProcess[K comparable, Out any](c *chain, out *node[KV[K, Out]], keys serde.Serde[K]) *processOp[K, Out] {
	ctx := &Context[K, Out]{
		rt: c.rt, name: out.op.name, keys: keys, w: MinTime, floor: MinTime,
		out: newBuffer(c, out.emitter(c)), chain: c, op: out.op, id: out.id,
	}
	ctx.event = state.NewTimers(ctx.table("event-timers"), c.rt.Groups(), keys)
	ctx.wall = state.NewTimers(ctx.table("wall-timers"), c.rt.Groups(), keys)
	ctx.tabs = append(ctx.tabs, ctx.event.Table(), ctx.wall.Table())
	return &processOp[K, Out]{ctx: ctx}
}

// built is called when the function has been set up.
func (p *processOp[K, Out]) built(c *chain) {
	for _, s := range p.ctx.op.sideNames {
		if !slices.Contains(p.ctx.declared, s.side) {
			c.errs = append(c.errs, fmt.Errorf("%q has no side output %q: its setup does not call SideOutput for it", p.ctx.name, s.name))
		}
	}
	p.ctx.chain, p.ctx.declared = nil, nil
}

func processInput[K comparable, In, Out any](p *processOp[K, Out], f func(v *In)) emit[KV[K, In]] {
	c := p.ctx
	return func(b *Batch[KV[K, In]]) error {
		c.group, c.floor = b.Group, c.w
		for i := range b.Items {
			c.key, c.time = b.Items[i].Key, b.Times[i]
			f(&b.Items[i].Value)
			if c.failed != nil {
				return c.failed
			}
		}
		return c.flush()
	}
}

func (p *processOp[K, Out]) Timer() (text, name string) {
	c, what := p.ctx, p.firing
	if what == "" {
		return "", ""
	}
	name = timerName(c.name+" "+what, c.keys, &c.key, c.time)
	if p.item != nil {
		item, data := p.item.show(c.group, &c.key)
		what += " " + item
		name += fmt.Sprintf(" %x", data)
	}
	return showTimer(fmt.Sprintf("process function %q, %s", c.name, what), c.key, c.time), name
}

func (p *processOp[K, Out]) tables() []exec.StateTable { return p.ctx.tabs }

func (p *processOp[K, Out]) advance(w int64, m *exec.Meter) (bool, error) {
	p.ctx.floor, p.firing = p.ctx.w, ""
	done, err := p.fireEvent(w, m)
	if err != nil {
		return false, err
	}
	if done {
		p.ctx.w = max(p.ctx.w, w)
	}
	return done, p.ctx.flush()
}

func (p *processOp[K, Out]) stand(w int64) {
	p.ctx.w = max(p.ctx.w, w)
	if p.ctx.onStand != nil {
		p.ctx.onStand()
	}
}

func (p *processOp[K, Out]) tick(now int64, m *exec.Meter) (bool, error) {
	p.ctx.floor, p.firing = p.ctx.w, ""
	for {
		t, ok := p.ctx.wall.Next(now)
		if !ok {
			return true, p.ctx.flush()
		}
		if done, err := p.fire(timerSet[K]{p.ctx.wall, p.onWall}, t, m); err != nil || !done {
			if err == nil {
				err = p.ctx.flush()
			}
			return false, err
		}
	}
}

// fireEvent fires the timers of all sets that are due by w.
func (p *processOp[K, Out]) fireEvent(w int64, m *exec.Meter) (done bool, err error) {
	for {
		due := timerSet[K]{p.ctx.event, p.onEvent}
		t, any := due.timers.Next(w)
		for i := len(p.sets) - 1; i >= 0; i-- {
			if at, ok := p.sets[i].timers.Next(w); ok && (!any || at <= t) {
				due, t, any = p.sets[i], at, true
			}
		}
		if !any {
			return true, nil
		}
		if done, err := p.fire(due, t, m); err != nil || !done {
			return false, err
		}
	}
}

// fire fires those timers of a set that are due at t, as found by next.
func (p *processOp[K, Out]) fire(set timerSet[K], t int64, m *exec.Meter) (done bool, err error) {
	c, ts := p.ctx, set.timers
	for {
		at, group, key, ok := ts.Pop(t) // a timer that was set in the past is before t
		if !ok {
			return true, nil
		}
		c.group, c.key, c.time = group, key, at
		done := set.fire(at, m)
		if c.failed != nil || !done {
			return false, c.failed
		}
	}
}

// onEvent and onWall fire the function's own timers.
func (p *processOp[K, Out]) onEvent(t int64, m *exec.Meter) (done bool) {
	if p.ctx.ordered {
		p.ctx.floor = t
	}
	return p.call("timer", p.timers.OnEvent, t, m)
}

func (p *processOp[K, Out]) onWall(t int64, m *exec.Meter) (done bool) {
	p.ctx.wallCall = true
	defer func() { p.ctx.wallCall = false }()
	return p.call("wall timer", p.timers.OnWall, t, m)
}

// call fires a timer of the current key: what tells those of the two clocks apart, which
// may have one key and time.
func (p *processOp[K, Out]) call(what string, f func(t int64), t int64, m *exec.Meter) (done bool) {
	if f == nil {
		p.ctx.fail(fmt.Errorf("process function %q sets timers and has no callback for them", p.ctx.name))
		return false
	}
	p.firing, p.item = what, nil
	if !m.Avoids(p) {
		f(t)
	}
	m.Units++
	return !m.Over()
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
	if o := stateOptionsOf(c, name, opts); o.ttl > 0 {
		return &endingValue[K, Out, V]{c, addExpiring(c, name, c.keys, sd, o.ttl)}
	}
	m := state.NewMap(c.table(name), c.rt.Groups(), c.keys, sd)
	c.tabs = append(c.tabs, m)
	return &value[K, Out, V]{c, m}
}

type value[K comparable, Out, V any] struct {
	c *Context[K, Out]
	m *state.Map[K, V]
}

func (h *value[K, Out, V]) Get() *V    { return h.m.Get(h.c.group, &h.c.key) }
func (h *value[K, Out, V]) Update() *V { return h.m.Update(h.c.group, &h.c.key) }
func (h *value[K, Out, V]) Upsert() *V {
	v, _ := h.m.Upsert(h.c.group, &h.c.key)
	return v
}

func (h *value[K, Out, V]) Put(v *V) {
	if err := h.m.Put(h.c.group, &h.c.key, v); err != nil {
		h.c.fail(err)
	}
}
func (h *value[K, Out, V]) Delete() { h.m.Delete(h.c.group, &h.c.key) }

// List is a handle on any number of values of the current key, each with a
// time, in the order of (time, arrival).
type List[V any] interface {
	// All returns the values; valid until the list is changed.
	All() []state.Elem[V]
	// Add adds a clone of *v.
	Add(time int64, v *V)
	// DropBefore removes the values whose time is < t.
	DropBefore(t int64)
	Delete()
}

// NewList makes state of a list a key; the name is unique in the function. With TTL(d) a
// value of the list ends d after its time, the one that it was added with.
func NewList[V any, K comparable, Out any](c *Context[K, Out], name string, sd serde.Serde[V], opts ...StateOption) List[V] {
	m := state.NewList(c.table(name), c.rt.Groups(), c.keys, sd)
	c.tabs = append(c.tabs, m)
	if o := stateOptionsOf(c, name, opts); o.ttl > 0 {
		return newEndingList(c, name, m, o.ttl)
	}
	return &listOf[K, Out, V]{c, m}
}

type listOf[K comparable, Out, V any] struct {
	c *Context[K, Out]
	m *state.List[K, V]
}

func (h *listOf[K, Out, V]) All() []state.Elem[V] { return h.m.Get(h.c.group, &h.c.key) }
func (h *listOf[K, Out, V]) Add(time int64, v *V) {
	if _, err := h.m.Add(h.c.group, &h.c.key, time, v); err != nil {
		h.c.fail(err)
	}
}
func (h *listOf[K, Out, V]) DropBefore(t int64) { h.m.DropBefore(h.c.group, &h.c.key, t) }
func (h *listOf[K, Out, V]) Delete()            { h.m.Delete(h.c.group, &h.c.key) }
