//go:build norescale

package tasks

import "tailrace.dev/tailrace/tasks/runtime"

// A program that is built with the tag norescale cannot move key groups: it refuses requests, and jobs
// that were rescaled.

func mover(*runtime.Config) runtime.Handover { return nil }

func checkRescale(*runtime.Config, Rescale) error { return runtime.ErrNoHandover }
