package manager

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
)

// Standbys returns the nonces of the workers that keep a warm copy of a task that is placed with
// another worker: the first ones of an order that differs for each task (rendezvous hashing), so
// that copies are spread and few of them move when a worker joins or leaves. Every worker computes
// by itself, from etcd, whether it is one of them; the manager prefers workers that report a copy
// (ADR 0016).
func Standbys(j *Job, k TaskKey, placed string, workers []Worker) []string {
	type ranked struct {
		nonce string
		rank  uint64
	}
	var all []ranked
	for i := range workers {
		w := &workers[i]
		if w.Nonce == placed || w.declines(j, j.Stages[k.Stage].Name) != "" {
			continue
		}
		h := fnv.New64a()
		fmt.Fprintf(h, "%s %v", w.Nonce, k)
		all = append(all, ranked{w.Nonce, h.Sum64()})
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.nonce, b.nonce)) })
	var out []string
	for _, r := range all[:min(j.Standbys, len(all))] {
		out = append(out, r.nonce)
	}
	return out
}

// warm returns the worker with the fewest tasks among those that can run the task and have a warm
// copy of it; nil if there is none.
func (c *Core) warm(j *job, t *task) (best *worker) {
	for _, w := range c.byName() {
		if w.standsBy(t.key, j.id) && c.unfit(j, t, w) == "" && (best == nil || c.load(w, "", 0) < c.load(best, "", 0)) {
			best = w
		}
	}
	return best
}

// beside returns the worker with copies of the most of the key groups that a newcomer is to get (docs/adr/0069)
// among those that can run it, of several the one with the fewest tasks; nil if none has any.
func (c *Core) beside(j *job, t *task) (best *worker) {
	most := 0
	for _, w := range c.byName() {
		if c.unfit(j, t, w) != "" {
			continue
		}
		n := 0
		for _, giver := range t.givers {
			if w.standsBy(TaskKey{t.key.Job, t.key.Stage, giver}, j.id) {
				n++
			}
		}
		if n > most || n > 0 && n == most && c.load(w, "", 0) < c.load(best, "", 0) {
			best, most = w, n
		}
	}
	return best
}

func (w *worker) standsBy(k TaskKey, id string) bool {
	return slices.ContainsFunc(w.last.Standbys, func(r TaskReport) bool { return r.Key() == k && r.ID == id })
}
