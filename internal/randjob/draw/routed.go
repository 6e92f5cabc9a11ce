package draw

import (
	"math/rand/v2"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// routed gives the streams of some jobs a RouteBy: all of them, for those that meet must have the same. It draws from a source of
// its own, behind all else.
func (d *drawing) routed(seed uint64) {
	d.rng = rand.New(rand.NewPCG(seed, 3<<32))
	if d.j.Settings.Slots > 0 || d.chance(70) {
		return
	}
	for i := range d.j.Nodes {
		switch n := &d.j.Nodes[i]; n.Op {
		case model.KeyBy:
			if n.Ahead {
				return
			}
		case model.Aggregate:
			if n.Global {
				return
			}
		case model.Grouped, model.WindowGroups, model.JoinForeign, model.LeftJoinForeign: // they make keyed streams by the hash
			return
		}
	}
	for i := range d.j.Nodes {
		n := &d.j.Nodes[i]
		n.Routed = n.Op == model.KeyBy || n.Op == model.PreAggregate
	}
}
