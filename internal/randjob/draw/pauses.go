package draw

import (
	"math/rand/v2"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/internal/randjob/model"
)

// pauses makes tasks of some jobs pause at steps that they reach. It draws from a source of its own, behind all else.
func (d *drawing) pauses(seed uint64) {
	d.rng = rand.New(rand.NewPCG(seed, 2<<32))
	if d.chance(50) {
		return
	}
	for range 1 + d.rng.IntN(5) {
		lists := [][]crash.Point{walk.OfStarts(), walk.Points()}
		if capable(d.j.Settings.Protocol).Rescales {
			lists = append(lists, walk.OfRescales())
		} else {
			lists = append(lists, walk.OfCheckpoints())
		}
		if d.j.Settings.Slots > 0 {
			lists = append(lists, walk.OfRoutes())
		}
		p := pick(d, pick(d, lists...)...)
		if walk.Locked(p) {
			continue // in a bubble of testing/synctest no time passes while others wait for a lock
		}
		d.j.Pauses = append(d.j.Pauses, model.Pause{
			Point: string(p), Stage: d.rng.IntN(6), Task: d.rng.IntN(3), MS: pick(d, 1, 5, 20, 100, 400), Times: pick(d, 1, 1, 2, 5),
		})
	}
}
