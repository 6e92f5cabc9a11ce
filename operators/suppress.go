package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Suppress holds the items of a key back and emits only the last of them, a time d after the first
// that it holds: of many updates of a key, one every d of event time. d is a positive whole number
// of milliseconds. The time of the emitted item is the time of its emission.
//
// Items are processed in the order of their times, once the watermark has passed them: what is
// emitted is a function of the items and their times. An item behind the watermark is late: counted
// and dropped, or in the stream that Late returns.
//
// With HoldAtMost the state is bounded, and what is emitted early is not defined.
func Suppress[K comparable, V any](in KeyedStream[K, V], name string, d time.Duration, opts ...Option) KeyedStream[K, V] {
	j := in.n.job
	what := fmt.Sprintf("suppress %q", name)
	if d <= 0 || d%time.Millisecond != 0 {
		j.errorf("%s: %v is not a positive whole number of milliseconds", what, d)
	}
	o := j.options(what, opts, "HoldAtMost")
	j.claim("process function", name)
	o.inOrder = true
	span := d.Milliseconds()
	out := process(in, j.identify(in.n.stage, "process", name), o, func(c *Context[K, V]) Handler[V] {
		s := &suppressed[K, V]{c: c, vals: in.vals, held: state.NewMap(c.table("held"), c.rt.Groups(), c.keys, heldSerde(in.vals))}
		c.tabs = append(c.tabs, s.held)
		s.most, s.bytes = o.holdBytes, make([]int, c.rt.Groups())
		if s.most > 0 {
			s.held.OnDrop(func(group int) { s.total, s.bytes[group] = s.total-s.bytes[group], 0 })
			c.onStand = s.sum
		}
		return Handler[V]{
			Item: func(v *V) {
				if err := s.hold(v, span); err != nil {
					c.fail(err)
				}
			},
			Timers: Timers{OnEvent: func(int64) { s.emit() }},
		}
	})
	if o.holdBytes > 0 {
		out.n.varies = what + " has HoldAtMost"
	}
	if in.vals != nil {
		out = out.With(in.vals)
	}
	return out
}

// HoldAtMost bounds what Suppress holds in a task: when its items are more than this many bytes,
// encoded and with their keys, it emits early those that are due first. Which items those are
// depends on the distribution of keys over tasks and on the order of arrival, and may differ from
// run to run. The last item of each key is emitted in any case.
func HoldAtMost(bytes int) Option {
	return Option{"HoldAtMost", func(o *options) {
		if o.holdBytes = bytes; bytes < 1 {
			o.bad = fmt.Sprintf("HoldAtMost %d bytes", bytes)
		}
	}}
}

// suppressed holds the last item of each key.
type suppressed[K comparable, V any] struct {
	c     *Context[K, V]
	vals  serde.Serde[V]
	held  *state.Map[K, heldItem[V]]
	most  int // bytes; 0: no bound
	total int
	bytes []int // by key group
	enc   []byte
}

// heldItem is an item that is due at a time. bytes is its size, 0 without a bound.
type heldItem[V any] struct {
	due   int64
	bytes int
	val   V
}

func heldSerde[V any](vals serde.Serde[V]) serde.Serde[heldItem[V]] {
	if vals == nil {
		return nil
	}
	return serde.New("held "+serde.NameOf(vals),
		func(dst []byte, v *heldItem[V]) []byte {
			return vals.Append(serde.AppendInt64(serde.AppendInt64(dst, v.due), int64(v.bytes)), &v.val)
		},
		func(r *serde.Reader, v *heldItem[V]) {
			v.due, v.bytes = r.Int64(), int(r.Int64())
			serde.Take(r, vals, &v.val)
		})
}

func (s *suppressed[K, V]) hold(v *V, span int64) error {
	c := s.c
	x, created := s.held.Upsert(c.group, &c.key)
	if created {
		x.due = MaxTime
		if c.time < MaxTime-span {
			x.due = c.time + span
		}
		c.SetEventTimer(x.due)
	}
	if err := serde.CloneInto(s.vals, &x.val, v); err != nil {
		return err
	}
	if s.most == 0 {
		return nil
	}
	s.enc = s.vals.Append(c.keys.Append(s.enc[:0], &c.key), v)
	s.count(c.group, len(s.enc)-x.bytes)
	x.bytes = len(s.enc)
	if s.total > s.most {
		s.relieve()
	}
	return nil
}

func (s *suppressed[K, V]) count(group, bytes int) {
	s.bytes[group] += bytes
	s.total += bytes
}

// emit emits the item of the current key.
func (s *suppressed[K, V]) emit() {
	c := s.c
	x := s.held.Get(c.group, &c.key)
	if x == nil {
		return
	}
	c.Emit(x.val, max(c.time, c.floor))
	s.count(c.group, -x.bytes)
	s.held.Delete(c.group, &c.key)
}

// relieve emits items until there is room, those first that are due first.
func (s *suppressed[K, V]) relieve() {
	c := s.c
	group, key := c.group, c.key
	for s.total > s.most && c.failed == nil {
		t, ok := c.event.Next(MaxTime)
		if !ok {
			break
		}
		if _, c.group, c.key, ok = c.event.Pop(t); ok {
			s.emit()
		}
	}
	c.group, c.key = group, key
}

// sum counts the held bytes after a restart.
func (s *suppressed[K, V]) sum() {
	s.total = 0
	for g := range s.bytes {
		s.bytes[g] = 0
		s.held.Range(g, func(_ *K, v *heldItem[V]) bool {
			s.count(g, v.bytes)
			return true
		})
	}
}
