//go:build !nokeyed

package routing

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/status"
)

// each is how many items there are to a sampled one on average: more would not be felt, and of fewer a balancer would know less.
const each = 128

// sampled routes items by a table, and samples those that go to their hash groups.
type sampled struct {
	table *route.Table
	to    *status.Sampler
	left  uint32 // items up to the next one
	state uint64
}

func newSampled(to *status.Sampler) *sampled { return &sampled{to: to, left: each, state: each} }

// Group implements exec.Router.
func (s *sampled) Group(hash uint64, key []byte) int {
	if s.left--; s.left == 0 {
		return s.sample(hash, key)
	}
	if s.table.Near(hash) {
		return s.table.Group(hash, key)
	}
	return exec.GroupOf(hash, s.table.Groups) // a call less for most items
}

// sample samples an item, and draws the distance of the next one: a constant one might meet the same keys of a periodic input
// again and again.
func (s *sampled) sample(hash uint64, key []byte) int {
	s.state ^= s.state << 13
	s.state ^= s.state >> 7
	s.state ^= s.state << 17
	s.left = 1 + uint32(s.state%(2*each-1))
	group := s.table.Group(hash, key)
	if group < s.table.Groups {
		s.to.Add(hash, key)
	}
	return group
}
