package join

import (
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// OuterSide holds the items of one side that may still find a partner.
type OuterSide[K comparable, V any] struct {
	List *state.List[K, V]
	// alone has the number of each item in List that has found none; nil: nothing needs it.
	alone *state.Map[state.PaneKey[K], struct{}]
	key   state.PaneKey[K] // here, because a local one would escape: an allocation an item
}

// NewOuterSide returns an empty side; outer says that items without a partner are emitted.
func NewOuterSide[V any, K comparable, Out any](c *process.Call[K, Out], name string, vals serde.Serde[V], outer bool) *OuterSide[K, V] {
	s := &OuterSide[K, V]{List: state.NewList(c.Table(name), c.RT.Groups(), c.Keys, vals)}
	c.AddTable(s.List)
	if outer {
		s.alone = state.NewMap(c.Table(name+"-alone"), c.RT.Groups(), state.PaneKeys(c.Keys), serde.Unit)
		c.AddTable(s.alone)
	}
	return s
}

// Met records that the item of this number has found a partner.
func (s *OuterSide[K, V]) Met(group int, key *K, number uint64) {
	if s.alone != nil {
		s.key = state.PaneKey[K]{Key: *key, Pane: int64(number)}
		s.alone.Delete(group, &s.key)
	}
}

// KeepAlone keeps the current item for later partners; met says that it has one already.
func KeepAlone[K comparable, Out, V any](c *process.Call[K, Out], s *OuterSide[K, V], v *V, keep int64, met bool) {
	until := c.Time + keep + 1
	if until <= c.W {
		if !met {
			c.Late()
		}
		return
	}
	if _, err := s.List.Add(c.Group, &c.Key, c.Time, v); err != nil {
		c.Fail(err)
		return
	}
	if s.alone != nil && !met {
		all := s.List.Get(c.Group, &c.Key)
		newest := &all[state.SearchTime(all, c.Time+1)-1]
		s.key = state.PaneKey[K]{Key: c.Key, Pane: int64(newest.Number())}
		s.alone.Upsert(c.Group, &s.key)
	}
	c.SetEventTimer(until)
}

// Expire drops the items whose time is < before. It calls emit for those without a partner, with
// the time of the result.
func (s *OuterSide[K, V]) Expire(group int, key *K, before, keep int64, emit func(v *V, t int64)) {
	if s.alone != nil {
		all := s.List.Get(group, key)
		for i := range all[:state.SearchTime(all, before)] {
			x := &all[i]
			s.key = state.PaneKey[K]{Key: *key, Pane: int64(x.Number())}
			if s.alone.Get(group, &s.key) != nil {
				s.alone.Delete(group, &s.key)
				emit(&x.Value, x.Time+keep)
			}
		}
	}
	s.List.DropBefore(group, key, before)
}
