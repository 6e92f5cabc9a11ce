package draw

import (
	"slices"

	"tailrace.dev/tailrace/internal/randjob/model"
)

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

// grains gives the keys of some flows clocks that may be switched while the job runs, and switches them. It is drawn last, so
// that the other jobs stay what they are.
func (d *drawing) grains() {
	protocols := []*string{&d.j.Settings.Protocol}
	for i := range d.j.Faults {
		if s := d.j.Faults[i].Settings; s != nil {
			protocols = append(protocols, &s.Protocol)
		}
	}
	if !capable(d.j.Settings.Protocol).Rescales {
		return
	}
	auto := false
	for i := range d.j.Nodes {
		n := &d.j.Nodes[i]
		if n.Ahead || n.ByProducer || n.Clocks == model.AutoClocks {
			continue
		}
		all := []int{i}
		if n.Clocks == 0 && n.Op == model.KeyBy && d.j.Hold == 0 && d.chance(30) {
			d.instead(func() { d.j.Gather(i) })
			n = &d.j.Nodes[i]
		}
		delay, ok := d.j.LeastDelay(i, false)
		if own, single := d.j.OwnDelay(i); single && d.chance(80) {
			delay, ok = own, true
		}
		if !ok {
			all, delay, ok = d.j.Joined(i)
		}
		if !ok || n.Clocks != 0 && len(all) > 1 || d.chance(30) {
			continue
		}
		clocks := model.AutoClocks
		if len(all) > 1 {
			clocks = pick(d, model.AutoClocks, model.AutoClocks, model.AutoClocks, model.KeyClocks)
		}
		delay += d.steps(2)
		for _, k := range all {
			d.j.Nodes[k].Clocks, d.j.Nodes[k].Delay = clocks, delay
		}
		auto = auto || clocks == model.AutoClocks
	}
	if !auto {
		return
	}
	for _, p := range protocols {
		if !capable(*p).Rescales {
			*p = pick(d, "fused", "marker")
		}
	}
	for range 1 + d.rng.IntN(5) {
		f := model.Fault{Kind: model.Switch, After: 1 + d.rng.IntN(pick(d, 3, 10, 30)), Stage: d.rng.IntN(8), Task: d.rng.IntN(4)}
		d.j.Faults = slices.Insert(d.j.Faults, d.rng.IntN(len(d.j.Faults)+1), f)
	}
}
