package grains

import (
	"context"
	"fmt"
	"time"

	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

// Job is what a Chooser needs of the job. Its methods are safe for concurrent use.
type Job interface {
	Status() []status.Snapshot
	// Grain is that of a stage as of the newest plan.
	Grain(stage string) envelope.Grain
	// Busy reports whether key groups are moving, or a savepoint is made.
	Busy() bool
	// SwitchGrain waits while key groups move.
	SwitchGrain(ctx context.Context, s runtime.Switch) error
}

// State is what a Chooser has done.
type State struct {
	Stage string `json:"stage"`
	// Grain is key or task, and Delay how far the clocks of keys are behind their newest items, in ms; 0 with task.
	Grain string `json:"grain"`
	Delay int64  `json:"key_delay_ms"`
	// Why says why it is, or remains, so.
	Why string `json:"why"`
	// Count is how often the Chooser has switched, and Switches are the newest 100 times.
	Count    int      `json:"count"`
	Switches []Switch `json:"switches"`
	// Error is the newest error of a switch; else it is empty.
	Error string `json:"error,omitempty"`
}

// Switch is a switch that has been made.
type Switch struct {
	At    time.Time `json:"at"`
	Grain string    `json:"grain"`
	Delay int64     `json:"key_delay_ms"`
	Why   string    `json:"why"`
}

// NewSwitch returns a switch to a grain.
func NewSwitch(at time.Time, g envelope.Grain, why string) Switch {
	if !g.PerKey {
		return Switch{At: at, Grain: "task", Why: why}
	}
	return Switch{At: at, Grain: "key", Delay: g.Delay, Why: why}
}

// String says what the grain of the stage is, and why.
func (s *State) String() string {
	text := fmt.Sprintf("grain %s: %s, %s", s.Stage, clocks(s.Grain, s.Delay), s.Why)
	if s.Error != "" {
		text += "; not switched: " + s.Error
	}
	return text
}

// String says what the grain became, and why.
func (s *Switch) String() string {
	return fmt.Sprintf("%s since %s: %s", clocks(s.Grain, s.Delay), s.At.Format(time.TimeOnly), s.Why)
}

// clocks names a grain as the API and the flags do.
func clocks(grain string, delay int64) string {
	if grain == "key" {
		return fmt.Sprintf("a clock for each key, delay %d ms", delay)
	}
	return "the task's clock"
}
