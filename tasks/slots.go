package tasks

import (
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/progress"
)

// slotsSetting is the name of the number of slots among a job's settings; a job without slots does not have it.
const slotsSetting = "slots"

// errSlots refuses slots, which are spare key groups as long as no task routes by a table (docs/adr/0078). It is
// a variable so that tests can run a job with them.
var errSlots = errors.New("nothing chooses a routing table yet: use more key groups (--key-groups), or PreAggregate where a key is heavier than a task")

// checkSlots returns why the job cannot have slots, and what to do instead.
func (s *Spec) checkSlots(can progress.Capabilities) error {
	switch {
	case !can.Rescales:
		return fmt.Errorf("slots: %d, but what is in a slot moves as key groups do, which they cannot under protocol %s: use fused or marker, or no slots", s.Slots, s.Protocol)
	case s.From != "":
		return fmt.Errorf("slots: %d, but a job that begins from a savepoint can have none: use more key groups (--key-groups)", s.Slots)
	case !slices.ContainsFunc(s.Plan.Streams, func(st exec.StreamSpec) bool { return st.Slots > 0 }):
		return fmt.Errorf("slots: %d, but no stream of the job can have some: its items go by the hash of a key nowhere, or to a number of key groups that is fixed: use no slots", s.Slots)
	case errSlots != nil:
		return fmt.Errorf("slots: %d: %w", s.Slots, errSlots)
	}
	return nil
}
