package draw

import "tailrace.dev/tailrace/internal/randjob/model"

// clocks gives the keys of some flows clocks of event time with which the answer stays the same. Which of them
// follow each producer is not drawn: the jobs of all seeds would change.
func (d *drawing) clocks() {
	for i := range d.j.Nodes {
		n, byProducer := &d.j.Nodes[i], (len(d.j.Nodes)+i)%5 < 2
		if delay, ok := d.j.LeastDelay(i, false); ok {
			if d.chance(50) {
				n.Clocks, n.Delay = pick(d, model.KeyClocks, model.KeyClocks, 1, 2, 16), delay+d.steps(2)
				n.ByProducer = byProducer && n.Clocks == model.KeyClocks
			}
		} else if delay, ok := d.j.LeastDelay(i, true); ok && byProducer {
			n.Clocks, n.Delay, n.ByProducer = model.KeyClocks, delay, true
		}
	}
}
