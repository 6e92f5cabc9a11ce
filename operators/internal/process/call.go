package process

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Call is what a function knows while it is called: the current key, the time, and where results go.
// State is reached through handles (NewValue, NewMap, NewList); like timers they are those of the
// current key.
type Call[K comparable, Out any] struct {
	RT   exec.Runtime
	Keys serde.Serde[K]
	// Name is the operator's: its tables begin with it.
	Name string
	Out  *chain.Buffer[item.KV[K, Out]]
	// Group, Key and Time are those of the current item or timer; W is the event time of the key: the
	// watermark, or that of the key's clock if it is later.
	Group int
	Key   K
	Time  int64
	W     int64
	// Floor is the least time of a result: the watermark, or the current time of a function that receives its
	// items in order.
	Floor int64
	// Failed is the first error of the call.
	Failed error
	// Event are the function's timers of event time.
	Event *state.Timers[K]
	// OnStand is called when the state has been restored, or key groups have come or gone; may be
	// nil.
	OnStand func()

	ordered bool
	byKey   bool // each key has a clock
	wall    *state.Timers[K]
	tabs    []exec.StateTable
	chain   *chain.Chain // while it is being built
	id      int          // of the operator's result
	// wallCall: a timer of the wall clock is being called.
	wallCall bool
	sides    []sideBuffer // the outputs besides Out
	onLate   func()       // puts the current item into the stream of late ones; nil: the job does not use that
}

// sideBuffer is a buffer of any type.
type sideBuffer interface{ Flush() error }

// Flush passes on what was emitted.
func (c *Call[K, Out]) Flush() error {
	for _, s := range c.sides {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	return c.Out.Flush()
}

// AddTable adds to the operator's state.
func (c *Call[K, Out]) AddTable(ts ...exec.StateTable) { c.tabs = append(c.tabs, ts...) }

// Table returns the name of a table of the operator.
func (c *Call[K, Out]) Table(name string) string { return c.Name + "." + name }

// Fail ends the call with an error, if it has none yet.
func (c *Call[K, Out]) Fail(err error) {
	if c.Failed == nil {
		c.Failed = err
	}
}

// Late counts the current item as one that came too late, and puts it into the stream of late items,
// if the job uses that.
func (c *Call[K, Out]) Late() {
	c.RT.Late(1)
	if c.byKey && c.W > c.Floor {
		c.RT.Count("late_by_key", 1)
	} else if c.byKey {
		c.RT.Count("late_by_stream", 1)
	}
	if c.onLate != nil {
		c.onLate()
	}
}

// EventTime returns what a function sees as the event time: that of the current key, or, in order, of the
// current item or timer.
func (c *Call[K, Out]) EventTime() int64 {
	if c.ordered {
		return c.Floor
	}
	return c.W
}

// Emit emits a result under the current key, at time t or the floor if that is later.
func (c *Call[K, Out]) Emit(v Out, t int64) {
	if c.Failed == nil {
		c.Failed = c.Out.Add(c.Group, item.KV[K, Out]{Key: c.Key, Value: v}, item.At{Time: max(t, c.Floor)})
	}
}

// SetEventTimer sets a timer of the current key; in order, at the earliest behind the current time.
func (c *Call[K, Out]) SetEventTimer(t int64) {
	if c.ordered {
		t = max(t, Passed(c.Floor))
	}
	c.Event.Set(c.Group, &c.Key, t)
}

// DeleteEventTimer removes a timer, if it is set.
func (c *Call[K, Out]) DeleteEventTimer(t int64) { c.Event.Delete(c.Group, &c.Key, t) }

// SetWallTimer sets a timer of the wall clock for the current key.
func (c *Call[K, Out]) SetWallTimer(t int64) { c.wall.Set(c.Group, &c.Key, t) }

// DeleteWallTimer removes a timer, if it is set.
func (c *Call[K, Out]) DeleteWallTimer(t int64) { c.wall.Delete(c.Group, &c.Key, t) }

// Side is an output of a function besides its results.
type Side[K comparable, Out, V any] struct {
	c   *Call[K, Out]
	out *chain.Buffer[item.KV[K, V]]
}

// NewSide returns a side output whose items go to out.
func NewSide[V any, K comparable, Out any](c *Call[K, Out], out *chain.Buffer[item.KV[K, V]]) *Side[K, Out, V] {
	c.sides = append(c.sides, out)
	return &Side[K, Out, V]{c, out}
}

// Emit is Call.Emit for this output.
func (s *Side[K, Out, V]) Emit(v V, t int64) {
	if c := s.c; c.Failed == nil {
		c.Failed = s.out.Add(c.Group, item.KV[K, V]{Key: c.Key, Value: v}, item.At{Time: max(t, c.Floor)})
	}
}

// Flush passes on what was emitted.
func (s *Side[K, Out, V]) Flush() error { return s.out.Flush() }
