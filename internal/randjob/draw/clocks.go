package draw

import "tailrace.dev/tailrace/internal/randjob/model"

// clocks gives the keys of some flows clocks of event time with which the answer stays the same.
func (d *drawing) clocks() {
	for i := range d.j.Nodes {
		if delay, ok := d.j.LeastDelay(i); ok && d.chance(50) {
			n := &d.j.Nodes[i]
			n.Clocks, n.Delay = pick(d, model.KeyClocks, model.KeyClocks, 1, 2, 16), delay+d.steps(2)
		}
	}
}
