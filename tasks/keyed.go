//go:build !nokeyed

package tasks

import (
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// What this file and those that scripts/without-keyed.txt lists besides have can be deleted; what is left is
// built with the tag nokeyed (keyed_none.go).

// checkKeyed returns why the program cannot run a job as it is described, if it is built without clocks of
// keys and slots.
func (s *Spec) checkKeyed() error { return nil }

// checkSaved is checkKeyed of a savepoint that the job begins from.
func checkSaved(*savepoint.Manifest) error { return nil }

// checkNewest is checkKeyed of the job that has an id in the log, and of its newest plan there.
func (s *Spec) checkNewest(string, *envelope.Plan) error { return nil }
