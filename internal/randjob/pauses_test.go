package randjob

import (
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/tasks/observe"
)

// observer makes the steps of a life crash points, at which tasks pause as the job says. Time is virtual: whatever does not
// wait for them continues meanwhile.
func (r *run) observer(plan *operators.Plan) observe.Observer {
	stages := map[string]int{}
	for i := range plan.Stages {
		stages[plan.Stages[i].Name] = i
	}
	var mu sync.Mutex
	times := make([]int, len(r.job.Pauses))
	due := func(e *observe.Event) (all time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		for i := range r.job.Pauses {
			p := &r.job.Pauses[i]
			if p.Point == string(e.Step) && times[i] < p.Times && (e.Stage == "" || p.Stage%len(stages) == stages[e.Stage] && p.Task == e.Task) {
				times[i]++
				all += time.Duration(p.MS) * time.Millisecond
			}
		}
		return all
	}
	return func(e observe.Event) {
		if d := due(&e); d > 0 {
			r.paused.Add(1)
			<-time.After(d)
		}
		walk.Observe(e)
	}
}
