package tasks

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/progress"
)

// slotsSetting is the name of the number of slots among a job's settings; a job without slots does not have it.
const slotsSetting = "slots"

// checkSlots returns why the job cannot have slots, and what to do instead.
func (s *Spec) checkSlots(can progress.Capabilities) error {
	switch {
	case !can.Rescales:
		return fmt.Errorf("slots: %d, but what is in a slot moves as key groups do, which they cannot under protocol %s: use fused or marker, or no slots", s.Slots, s.Protocol)
	case s.From != "":
		return fmt.Errorf("slots: %d, but a job that begins from a savepoint can have none: use more key groups (--key-groups)", s.Slots)
	case !slices.ContainsFunc(s.Plan.Streams, func(st exec.StreamSpec) bool { return st.Slots > 0 }):
		return fmt.Errorf("slots: %d, but no stream of the job can have some: its items go by the hash of a key nowhere, or to a number of key groups that is fixed: use no slots", s.Slots)
	}
	return nil
}

// OnWorkers returns why workers cannot run the job, and what to do instead; nil: they can.
func (s *Spec) OnWorkers() error {
	for i := range s.Plan.Stages {
		if st := &s.Plan.Stages[i]; st.Switches() {
			return fmt.Errorf("job %q: nothing changes the grain of stage %q on workers (WatermarkPer(Auto)): run the job in one process, or use Key with a delay of %d ms or more, or Task", s.Name, st.Name, st.Grain.Delay)
		}
	}
	if s.Slots > 0 {
		return fmt.Errorf("job %q: slots: %d, but the manager, which balances jobs on workers, moves whole key groups: run the job in one process, or use no slots and more key groups (--key-groups)", s.Name, s.Slots)
	}
	return nil
}
