package driver

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/tasks"
)

// chosen tells of each switch of a grain that chooses itself until stop, which returns how it was chosen.
func (s *Settings) chosen(job *tasks.Job) (stop func() []tasks.Chosen) {
	if len(job.Grains()) == 0 {
		return func() []tasks.Chosen { return nil }
	}
	stopped, over := make(chan struct{}), make(chan struct{})
	told := map[string]int{}
	go func() {
		defer close(over)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			s.tellChosen(job.Grains(), told)
			select {
			case <-tick.C:
			case <-stopped:
				return
			}
		}
	}()
	return func() []tasks.Chosen {
		close(stopped)
		<-over
		all := job.Grains()
		s.tellChosen(all, told)
		return all
	}
}

// tellChosen tells of the switches that have not been told of; told counts them by stage.
func (s *Settings) tellChosen(all []tasks.Chosen, told map[string]int) {
	for i := range all {
		c := &all[i]
		for k := range c.Switches {
			if n := c.Count - len(c.Switches) + k; n < told[c.Stage] || s.OnGrain == nil {
				continue
			}
			sw := &c.Switches[k]
			text := "the task's clock"
			if sw.Grain == "key" {
				text = fmt.Sprintf("a clock for each key, delay %d ms", sw.Delay)
			}
			s.OnGrain(fmt.Sprintf("grain of %s: %s (%s)", c.Stage, text, sw.Why))
		}
		told[c.Stage] = c.Count
	}
}
