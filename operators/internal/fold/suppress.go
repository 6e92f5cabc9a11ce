package fold

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Suppress holds the last item of each key back, for Span ms.
type Suppress[K comparable, V any] struct {
	Span int64
	Most int // bytes; 0: no bound

	c     *process.Call[K, V]
	vals  serde.Serde[V]
	held  *state.Map[K, heldItem[V]]
	total int
	bytes []int // by key group
	enc   []byte
}

// Start makes the state.
func (s *Suppress[K, V]) Start(c *process.Call[K, V], vals serde.Serde[V]) {
	s.c, s.vals, s.held = c, vals, state.NewMap(c.Table("held"), c.RT.Groups(), c.Keys, heldSerde(vals))
	c.AddTable(s.held)
	if s.bytes = make([]int, c.RT.Groups()); s.Most > 0 {
		s.held.WholeGroups() // what is emitted for want of room depends on all keys
		s.held.Stays("what is emitted for want of room depends on all keys; use Suppress without HoldAtMost, or a stage without slots")
		s.held.OnDrop(func(group int) { s.total, s.bytes[group] = s.total-s.bytes[group], 0 })
		c.OnStand = s.sum
	}
}

// Item holds an item.
func (s *Suppress[K, V]) Item(v *V) {
	if err := s.hold(v, s.Span); err != nil {
		s.c.Fail(err)
	}
}

// Due emits the item of the current key.
func (s *Suppress[K, V]) Due(int64) { s.emit() }

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

func (s *Suppress[K, V]) hold(v *V, span int64) error {
	c := s.c
	x, created := s.held.Upsert(c.Group, &c.Key)
	if created {
		x.due = exec.MaxTime
		if c.Time < exec.MaxTime-span {
			x.due = c.Time + span
		}
		c.SetEventTimer(x.due)
	}
	if err := serde.CloneInto(s.vals, &x.val, v); err != nil {
		return err
	}
	if s.Most == 0 {
		return nil
	}
	s.enc = s.vals.Append(c.Keys.Append(s.enc[:0], &c.Key), v)
	s.count(c.Group, len(s.enc)-x.bytes)
	x.bytes = len(s.enc)
	if s.total > s.Most {
		s.relieve()
	}
	return nil
}

func (s *Suppress[K, V]) count(group, bytes int) {
	s.bytes[group] += bytes
	s.total += bytes
}

// emit emits the item of the current key.
func (s *Suppress[K, V]) emit() {
	c := s.c
	x := s.held.Get(c.Group, &c.Key)
	if x == nil {
		return
	}
	c.Emit(x.val, max(c.Time, c.Floor))
	s.count(c.Group, -x.bytes)
	s.held.Delete(c.Group, &c.Key)
}

// relieve emits items until there is room, those first that are due first.
func (s *Suppress[K, V]) relieve() {
	c := s.c
	group, key := c.Group, c.Key
	for s.total > s.Most && c.Failed == nil {
		t, ok := c.Event.Next(exec.MaxTime)
		if !ok {
			break
		}
		if _, c.Group, c.Key, ok = c.Event.Pop(t); ok {
			s.emit()
		}
	}
	c.Group, c.Key = group, key
}

// sum counts the held bytes after a restart.
func (s *Suppress[K, V]) sum() {
	s.total = 0
	for g := range s.bytes {
		s.bytes[g] = 0
		s.held.Range(g, func(_ *K, v *heldItem[V]) bool {
			s.count(g, v.bytes)
			return true
		})
	}
}
