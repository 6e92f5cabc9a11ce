package exec

import (
	"fmt"
	"time"
)

// Grain says which keys of a stage share a clock of event time.
type Grain struct {
	// Kind is one of the constants below, "" is GrainTask.
	Kind string `json:"kind"`
	// Delay is how far a clock is behind the newest of its items, in ms.
	Delay int64 `json:"delay_ms"`
	// Clocks is how many clocks a key group has, with GrainKeys.
	Clocks int `json:"clocks,omitempty"`
}

// The kinds of grains.
const (
	GrainTask = "task" // one clock, the task's watermark
	GrainKey  = "key"  // a clock for each key
	GrainKeys = "keys" // some clocks for each key group
)

func (g Grain) String() string {
	if g.Kind == "" || g.Kind == GrainTask {
		return "one for a task"
	}
	if g.Kind == GrainKeys {
		return fmt.Sprintf("%d for each key group, delay %v", g.Clocks, time.Duration(g.Delay)*time.Millisecond)
	}
	return fmt.Sprintf("one for each %s, delay %v", g.Kind, time.Duration(g.Delay)*time.Millisecond)
}
