package embedded

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/balance"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/runtime"
)

// balancer is what balances a stage.
type balancer struct {
	*balance.Balancer
	stop chan struct{}
}

// Balance distributes the key groups of a stage over its tasks as r says, from now on until this
// process of the job ends, or until it is asked otherwise for the stage. Key groups move as Rescale
// moves them, and it is refused what Rescale is refused.
func (j *Job) Balance(r balance.Request) error {
	if err := j.stay(); err != nil {
		return fmt.Errorf("balance stage %q: %w", r.Stage, err)
	}
	defer j.leave()
	err := errors.Join(r.Check(), j.onlyOnRequest(r.Stage))
	var h runtime.Handover
	if err == nil {
		h, err = j.handover(r.Stage, 1)
	}
	if err == nil {
		err = h.Check(r.Stage, 1)
	}
	if err != nil {
		return fmt.Errorf("balance stage %q: %w", r.Stage, err)
	}
	cfg := j.executor.Config()
	index := slices.IndexFunc(cfg.Layout.Plan.Stages, func(s exec.StageSpec) bool { return s.Name == r.Stage })
	b, err := balance.New(j, cfg.Logger, index, r)
	if err != nil {
		return fmt.Errorf("balance stage %q: %w", r.Stage, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if old := j.balancers[r.Stage]; old != nil {
		close(old.stop)
	}
	stop := make(chan struct{})
	j.balancers[r.Stage] = &balancer{b, stop}
	j.beside.Go(func() { b.Run(j.ctx, stop) })
	return nil
}

// byLoad returns a request with owners that what balances the stage has planned.
func (j *Job) byLoad(r rescale.Request) rescale.Request {
	j.mu.Lock()
	b := j.balancers[r.Stage]
	j.mu.Unlock()
	if b == nil {
		return r
	}
	return r.ByLoad(b.For)
}

// Balanced returns how the key groups of stages are distributed, by the names of the stages that
// Balance was called for.
func (j *Job) Balanced() (all []balance.State) {
	j.mu.Lock()
	of := maps.Clone(j.balancers)
	j.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, of[name].State())
	}
	return all
}
