//go:build !norescale

package tasks

import (
	"tailrace.dev/tailrace/tasks/handover"
	"tailrace.dev/tailrace/tasks/runtime"
)

// No other file imports package handover. Without the package and this file, what is left builds with
// the tag norescale (moves_none.go): scripts/without-handover.sh.

// mover returns what moves the key groups of a job; nil: nothing can.
func mover(cfg *runtime.Config) runtime.Handover { return handover.New(cfg) }

// checkRescale returns why a request of a job on workers cannot be carried out, as far as the job's
// settings say.
func checkRescale(cfg *runtime.Config, r Rescale) error { return handover.Check(cfg, r) }
