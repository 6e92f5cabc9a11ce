package driver

import "tailrace.dev/tailrace/tasks"

// Clocks says which clocks of event time the keys of a workload have, and which items were late by them. It
// is nil for a workload without such clocks: all keys have the clock of their task.
type Clocks struct {
	// Grain is as --grain says it.
	Grain string `json:"grain"`
	// KeyDelay is how far a clock is behind its newest item, in ms.
	KeyDelay int64 `json:"key_delay_ms"`
	// LateByKey are the items that were late by the clock of their key alone, LateByStream those behind the
	// watermark of their task, too.
	LateByKey    int64 `json:"late_by_key"`
	LateByStream int64 `json:"late_by_stream"`
	// Chosen says, with the grain auto, which grain each stage has now, since when, and why; nil otherwise. KeyDelay is
	// then the least.
	Chosen []tasks.Chosen `json:"chosen,omitempty"`
}

// clocks returns the clocks of the job, nil if it has none for keys.
func (j *job) clocks() *Clocks {
	g := j.workload.Grain(j.params)
	if g == "" || g == "task" {
		return nil
	}
	return &Clocks{Grain: g, KeyDelay: j.params.KeyDelay(j.input).Milliseconds()}
}

// add adds what a task has counted.
func (c *Clocks) add(t *tasks.Status) {
	c.LateByKey += t.Counters["late_by_key"]
	c.LateByStream += t.Counters["late_by_stream"]
}
