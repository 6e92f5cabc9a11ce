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
	// Streams, if clocks follow each path of a key, is how many streams meet in one keyed flow of the
	// stage, at most; 0: they follow the items as they come. A path leads from a task that writes one of
	// the streams; a flow has MostPaths at most.
	Streams int `json:"streams,omitempty"`
}

// MostPaths is the greatest number of paths by which items of one key come.
const MostPaths = 16

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
	by := ""
	if g.Streams > 0 {
		by = ", by producer"
	}
	return fmt.Sprintf("one for each %s, delay %v%s", g.Kind, time.Duration(g.Delay)*time.Millisecond, by)
}
