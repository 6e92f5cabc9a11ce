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
}

// The kinds of grains.
const (
	GrainTask = "task" // one clock, the task's watermark
	GrainKey  = "key"  // a clock for each key
)

func (g Grain) String() string {
	if g.Kind == "" || g.Kind == GrainTask {
		return "one for a task"
	}
	return fmt.Sprintf("one for each %s, delay %v", g.Kind, time.Duration(g.Delay)*time.Millisecond)
}
