package draw

import (
	"math/rand/v2"
	"slices"

	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/internal/randjob/model"
)

// slots gives the streams of some jobs slots, and replaces their routing tables. It draws from a source of its own, behind all
// else: the jobs that get none stay what they are.
func (d *drawing) slots(seed uint64) {
	d.rng = rand.New(rand.NewPCG(seed, 1<<32)) // no try of Job has that
	if s := &d.j.Settings; !capable(s.Protocol).Rescales || d.chance(30) {
		return
	}
	d.movable()
	d.j.Settings.Slots = pick(d, 1, 2, 4, 4, 8)
	for i := range d.j.Faults { // a job that is restored keeps its slots
		if s := d.j.Faults[i].Settings; s != nil {
			if !capable(s.Protocol).Rescales {
				s.Protocol = pick(d, "fused", "marker")
			}
		}
	}
	insert := func(f model.Fault) {
		d.j.Faults = slices.Insert(d.j.Faults, d.rng.IntN(len(d.j.Faults)+1), f)
	}
	tables := pick(d, 1, 2, 1000) // so many different ones: the same come back
	for range 1 + d.rng.IntN(8) {
		insert(model.Fault{
			Kind: model.Reroute, After: 1 + d.rng.IntN(pick(d, 3, 10, 30)), Stage: d.rng.IntN(8), Task: d.rng.IntN(tables + 1), Owners: d.chance(50),
		})
	}
	for i := range d.j.Faults {
		if f := &d.j.Faults[i]; f.Kind == model.KillAt && d.chance(50) {
			f.Point = string(pick(d, walk.OfRoutes()...))
		}
	}
	if d.chance(10) {
		insert(model.Fault{Kind: model.KillAt, Point: string(pick(d, walk.OfRoutes()...)), After: 1 + d.rng.IntN(3)})
	}
}

// movable takes from the job, most of the time, what cannot be moved to slots, and of which a job can do without.
func (d *drawing) movable() {
	if d.chance(5) {
		return
	}
	for i := range d.j.Nodes {
		n := &d.j.Nodes[i]
		if n.Clocks > 0 {
			n.Clocks = model.KeyClocks
		}
		if n.Op == model.Suppress {
			n.Count = 0
		}
		if n.Global {
			d.instead(func() { d.j.Nodes[i].Global, d.j.Nodes[i].Ref = false, 0 })
		}
	}
}
