package randjob

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/rescale"
)

// This file replaces routing tables. scripts/without-keyed.txt lists it.

func init() {
	reroute = func(ctx context.Context, r *run, fault *model.Fault) {
		l := r.running.Layout()
		var stages []int
		for s := range l.Stages {
			if l.Stages[s].Slots > 0 {
				stages = append(stages, s)
			}
		}
		s, job, process := stages[fault.Stage%len(stages)], r.running, r.process
		rng := rand.New(rand.NewPCG(uint64(fault.Task), r.job.Seed))
		ask := tasks.Reroute{Stage: l.Plan.Stages[s].Name}
		if fault.Task > 0 {
			ask.Places = places(rng, &l.Stages[s], keysOf(r.job))
		}
		if fault.Owners {
			ask.Owners = owners(rng, &l.Stages[s])
		}
		r.plans.Go(func() {
			switch err := job.Reroute(ctx, ask); {
			case err == nil:
				r.rerouted.Add(1)
			case errors.Is(err, tasks.ErrEnded), errors.Is(err, rescale.ErrStageEnded), process.dead.Load():
			case ask.Owners != nil && r.rescales.Load() > 0: // they may be those of another number of tasks, also if it was asked for after the table
			default:
				r.odd.CompareAndSwap(nil, failure(Failed, "%v", err))
			}
		})
	}
}

// keysOf returns keys that streams of the job may have, as they are in the log: those of the sources' items.
func keysOf(j *model.Job) (all [][]byte) {
	for i := range j.Nodes {
		n := &j.Nodes[i]
		if n.Op != model.KeyBy && n.Op != model.PreAggregate {
			continue
		}
		each(j, func(e *model.Event) {
			row := e.Row()
			all = append(all, kinds[n.Key].bytes(model.KeyOf(n.Key, n.Fn, &row)))
		})
	}
	slices.SortFunc(all, bytes.Compare)
	return slices.CompactFunc(all, bytes.Equal)
}

// places draws those of a table: in most slots one of the keys, or some sub-groups of a hash group.
func places(rng *rand.Rand, st *layout.Stage, keys [][]byte) (all []route.Place) {
	groups := st.Hashed()
	const byKey, whole = 1, 2
	taken := make([]int, groups*route.Parts) // how places have each sub-group
	placed := map[string]bool{}
	for slot := groups; slot < st.Groups; slot++ {
		switch first := rng.IntN(len(taken)); {
		case rng.IntN(4) == 0:
		case len(keys) > 0 && rng.IntN(2) == 0:
			key := keys[rng.IntN(len(keys))]
			hash := exec.HashKey(key)
			sub := exec.GroupOf(hash, groups)*route.Parts + exec.SubGroupOf(hash, groups, route.Parts)
			if placed[string(key)] || taken[sub] == whole {
				continue
			}
			placed[string(key)], taken[sub] = true, byKey
			all = append(all, route.Place{Part: route.Single(key), Slot: slot})
		default:
			p := route.Part{Group: first / route.Parts, Sub: first % route.Parts}
			for most := 1 + rng.IntN(route.Parts-p.Sub); p.N < most && taken[first+p.N] == 0; p.N++ {
				taken[first+p.N] = whole
			}
			if p.N > 0 {
				all = append(all, route.Place{Part: p, Slot: slot})
			}
		}
	}
	return all
}

// owners draws owners of the key groups of a stage, so that each task has one.
func owners(rng *rand.Rand, st *layout.Stage) []int {
	of := make([]int, st.Groups)
	for g := range of {
		of[g] = rng.IntN(st.Tasks)
	}
	for task, g := range rng.Perm(st.Groups)[:st.Tasks] {
		of[g] = task
	}
	return of
}
