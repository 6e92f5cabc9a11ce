package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/tasks"
)

// CheckAutoscales fills in the stages of Autoscales and refuses those that are impossible. It opens
// nothing.
func (s *Settings) CheckAutoscales() error {
	if len(s.Autoscales) == 0 {
		return nil
	}
	check, err := s.rescalable(true)
	if err != nil {
		return err
	}
	for i := range s.Autoscales {
		a := &s.Autoscales[i]
		for _, n := range []int{max(a.Min, 1), max(a.Max, 1)} { // off has none
			if err := check(&a.Stage, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// autoscale asks a job for the Autoscales, and tells of each rescale that follows until stop, which
// returns what has been done.
func (s *Settings) autoscale(ctx context.Context, job *tasks.Job) (stop func() []tasks.Autoscaled, err error) {
	for _, a := range s.Autoscales {
		if err := job.Autoscale(ctx, a); err != nil && !errors.Is(err, tasks.ErrEnded) {
			return nil, err
		}
	}
	stopped, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		told := map[string]int{}
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			s.tellAutoscaled(job.Autoscaled(), told)
			select {
			case <-tick.C:
			case <-stopped:
				return
			}
		}
	}()
	return func() []tasks.Autoscaled {
		close(stopped)
		<-over
		return job.Autoscaled()
	}, nil
}

// tellAutoscaled tells of the rescales that have not been told of; told counts them by stage.
func (s *Settings) tellAutoscaled(all []tasks.Autoscaled, told map[string]int) {
	for i := range all {
		a := &all[i]
		for k := range a.Rescales {
			if n := a.Count - len(a.Rescales) + k; n < told[a.Stage] || s.OnAutoscale == nil {
				continue
			}
			r := &a.Rescales[k]
			if r.Error != "" {
				s.OnAutoscale(fmt.Sprintf("autoscale %s: %d → %d tasks failed (%s): %s", r.Stage, r.From, r.To, r.Why, r.Error))
				continue
			}
			s.OnAutoscale(fmt.Sprintf("autoscale %s: %d → %d tasks (%s), %d of %d key groups moved, %.1f ms", r.Stage, r.From, r.To, r.Why, r.GroupsMoved, r.KeyGroups, r.SettledMS))
		}
		told[a.Stage] = a.Count
	}
}
