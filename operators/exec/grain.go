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
	GrainAuto = "auto" // GrainTask or GrainKey, which changes while the job runs; Delay is the least that GrainKey has
)

// PerKey reports whether keys have clocks beside the task's, or may get them.
func (g Grain) PerKey() bool { return g.Kind == GrainKey || g.Kind == GrainKeys || g.Kind == GrainAuto }

// Switches reports whether the grain of a stage may change while the job runs.
func (s *StageSpec) Switches() bool { return s.Grain != nil && s.Grain.Kind == GrainAuto }

// Switcher is what a Chain implements besides whose stage has the grain GrainAuto. It begins with GrainTask.
type Switcher interface {
	// Switch sets the grain, GrainTask or GrainKey, between two sections. Behind which one is, as the
	// sections themselves, input: a restored task sets the grain that its predecessor had there.
	//
	// Clocks that keys have stand still with GrainTask, until the watermark has reached them; those of keys
	// without one begin with the next item once it is GrainKey. A clock that is further than a larger delay allows
	// stands until the items have reached it. So no clock goes back.
	Switch(g Grain)
}

func (g Grain) String() string {
	if g.Kind == "" || g.Kind == GrainTask {
		return "one for a task"
	}
	if g.Kind == GrainKeys {
		return fmt.Sprintf("%d for each key group, delay %v", g.Clocks, time.Duration(g.Delay)*time.Millisecond)
	}
	if g.Kind == GrainAuto {
		return fmt.Sprintf("one for a task or for each key, as the data demand, delay %v or more", time.Duration(g.Delay)*time.Millisecond)
	}
	by := ""
	if g.Streams > 0 {
		by = ", by producer"
	}
	return fmt.Sprintf("one for each %s, delay %v%s", g.Kind, time.Duration(g.Delay)*time.Millisecond, by)
}
