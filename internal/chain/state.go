package chain

import (
	"fmt"
	"slices"
	"strings"
)

// shards is the number of shards: 0, which may be sealed, and 1, which replaces it.
const shards = 2

// group is an append in flight or in a sublog: its instance and number, and whether it opens the
// writer's session there.
type group struct {
	inst, n int
	opens   bool
}

// conn is a connection to a shard; what is sent on it arrives in order, or is lost with everything
// after it.
type conn struct {
	shard  int
	groups []group
}

// writer is one instance: it has sent the numbers below next, knows the outcomes up to acked, and
// has its home at a shard.
type writer struct {
	inst, next, acked, home int
}

// state is a state of the model.
type state struct {
	sublog   [shards][]group
	cut      [shards]int
	sealed   bool // of shard 0
	holds    int  // the instance that the metadata names
	returned bool // a value was set again (only without Fresh)
	effect   []int
	conns    []conn
	writers  []writer // the first instance, and its rival if there is one
}

func (s *state) clone() *state {
	c := *s
	for i := range s.sublog {
		c.sublog[i] = slices.Clone(s.sublog[i])
	}
	c.effect = slices.Clone(s.effect)
	c.conns = make([]conn, len(s.conns))
	for i, k := range s.conns {
		c.conns[i] = conn{k.shard, slices.Clone(k.groups)}
	}
	c.writers = slices.Clone(s.writers)
	return &c
}

// key identifies the state; the order of connections does not matter.
func (s *state) key() string {
	var conns []string
	for _, c := range s.conns {
		if len(c.groups) > 0 {
			conns = append(conns, fmt.Sprint(c))
		}
	}
	slices.Sort(conns)
	return fmt.Sprint(s.sublog, s.cut, s.sealed, s.holds, s.returned, s.effect, s.writers, strings.Join(conns, ""))
}

// bad reports whether the groups with effect are not a prefix of those that were sent.
func (s *state) bad() bool {
	for i, n := range s.effect {
		if n != i+1 {
			return true
		}
	}
	return false
}
