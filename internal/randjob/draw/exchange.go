package draw

import (
	"slices"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// exchange draws what is exchanged between stages: partial results sooner, what key groups have of a key, or nothing,
// because the source is partitioned by the key. The answer stays the same.
func (d *drawing) exchange() {
	for i := range d.j.Nodes {
		switch n := &d.j.Nodes[i]; {
		case n.Op == model.PreAggregate:
			n.Count, n.Point = pick(d, 0, 1, 2, 3, 10), pick(d, 0, 0, 1, 2, 5)
		case n.Op == model.Aggregate && !n.InOrder && d.chance(90):
			d.instead(func() { d.j.Nodes[i].Global, d.j.Nodes[i].Ref = true, d.rng.IntN(2) })
		case n.Op == model.KeyBy && d.chance(60) && d.j.Hold == 0: // at a hold, a task of idle partitions stands
			gather := d.chance(50)
			d.instead(func() {
				if gather {
					d.j.Gather(i)
				}
				n := &d.j.Nodes[i]
				n.Ahead, n.Clocks, n.Delay, n.Groups, n.Parallelism = true, 0, 0, 0, 0
			})
		}
	}
}

// instead changes the job, if it makes sense then.
func (d *drawing) instead(change func()) {
	nodes := slices.Clone(d.j.Nodes)
	for i := range nodes {
		if s := nodes[i].Source; s != nil {
			c := *s
			c.Parts = slices.Clone(s.Parts) // of whose events none is changed
			nodes[i].Source = &c
		}
	}
	change()
	if _, refused, err := model.Classes(d.j); err != nil || refused != "" && !d.mismatched {
		d.j.Nodes = nodes
	}
}
