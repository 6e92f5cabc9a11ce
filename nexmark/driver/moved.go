package driver

import (
	"context"
	"math"
	"time"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/rescale"
)

// Moved says how the state of a rescale came, and what records waited for it.
type Moved struct {
	tasks.Moved
	// Waits is how many records waited for the state of their keys, none under marker; the others are bounds
	// of how long half of them waited, 99 of 100, and all, in ms; unseen if they are above
	// the longest bound.
	Waits     uint64 `json:"waits"`
	WaitP50MS MS     `json:"wait_p50_ms"`
	WaitP99MS MS     `json:"wait_p99_ms"`
	WaitMaxMS MS     `json:"wait_max_ms"`
}

// arrivedWithin is the longest wait for the state of a rescale: it does not all come if a task fails meanwhile.
const arrivedWithin = 5 * time.Second

// arrived waits until the state of the last rescale has come, and completes it. A rescale is done when the receivers own
// the groups; with state on disk, or of another process, they get it later. A receiver that is asked to leave before that takes
// what it has counted with it.
func arrived(ctx context.Context, job *tasks.Job, all []Rescaled) {
	if len(all) == 0 {
		return
	}
	r := &all[len(all)-1]
	limit := time.NewTimer(arrivedWithin)
	defer limit.Stop()
	for {
		came(all, job.Status())
		if mode, err := rescale.ModeOf(r.Mode); r.NotDone != "" || err != nil || mode.Restarts || r.GroupsMoved == 0 || r.Moved != nil && r.Moved.groups() >= uint64(r.GroupsMoved) {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-limit.C:
			return
		case <-job.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// groups returns the number of groups whose state has come.
func (m *Moved) groups() uint64 {
	return m.Given + m.Copied + m.Fetched + m.Restored
}

// came completes the last rescale, now that the tasks have this status.
func came(all []Rescaled, now []tasks.Status) {
	if len(all) == 0 || all[len(all)-1].NotDone != "" {
		return
	}
	r := &all[len(all)-1]
	var sum tasks.Moved
	for i := range now {
		t := &now[i]
		if t.Stage != r.Stage || t.Moved == nil {
			continue
		}
		sum.Add(t.Moved, 1)
		for k := range r.before {
			if was := &r.before[k]; was.Stage == t.Stage && was.Task == t.Task && was.Instance == t.Instance && was.Moved != nil {
				sum.Add(was.Moved, -1)
			}
		}
	}
	if sum == (tasks.Moved{}) {
		return
	}
	bound := func(share float64) MS {
		if ms := sum.Waits.Quantile(share); !math.IsInf(ms, 1) {
			return MS(ms)
		}
		return Unseen()
	}
	r.Moved = &Moved{Moved: sum, Waits: sum.Waits.Total(), WaitP50MS: bound(0.5), WaitP99MS: bound(0.99), WaitMaxMS: bound(1)}
}
