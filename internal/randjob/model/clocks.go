package model

import (
	"fmt"
	"slices"
)

// LeastDelay returns the least delay with which the clocks of keys behind node i, a KeyBy or PreAggregate,
// which follow each producer or not, make no item late
// that is not late for the task. ok is false if there is none, because items of a key can overtake each
// other on their way there, or because the job's answer would not be that of the task's clock.
//
// Items come by one path if they come from one partition and no node brings flows together or distributes
// them. From several partitions, and behind a Rebalance, they come in any order, for a task may have several
// partitions. Behind one operator with state the results' times
// may be out of order, so that there is no other on the keyed flow.
func (j *Job) LeastDelay(i int, byProducer bool) (delay int64, ok bool) {
	if op := j.Nodes[i].Op; op != KeyBy && op != PreAggregate || !j.ends(i, op == PreAggregate) {
		return 0, false
	}
	mixed := false
	for i = j.Nodes[i].In[0]; j.Nodes[i].Op != Source; i = j.Nodes[i].In[0] {
		if byProducer && j.Nodes[i].Op == Rebalance {
			mixed = true
			continue
		}
		if !slices.Contains([]Op{Map, FlatMap, Filter, FilterMap, Observe, Forward, Branch, Pick}, j.Nodes[i].Op) {
			return 0, false
		}
	}
	parts, first, newest := 0, int64(0), int64(0)
	for _, p := range j.Nodes[i].Source.Parts {
		if len(p.Events) == 0 {
			continue
		}
		if parts++; parts == 1 {
			first, newest = p.Events[0].T, p.Events[0].T
		}
		for _, e := range p.Events {
			first, newest = min(first, e.T), max(newest, e.T)
			delay = max(delay, newest-e.T)
		}
	}
	if parts > 1 || mixed {
		delay = newest - first
	}
	return delay, true
}

// ends reports whether each way from a keyed flow goes to a sink or leaves the key by one operator with
// state at most, without meeting other flows. state: there was one.
func (j *Job) ends(of int, state bool) bool {
	for i := range j.Nodes {
		n := &j.Nodes[i]
		if !slices.Contains(n.In, of) || n.Op == Sink || n.Op == Unkey {
			continue
		}
		stateless := slices.Contains([]Op{MapValues, FilterValues, FilterTable, AsStream}, n.Op)
		if len(n.In) > 1 || !stateless && state || !j.ends(i, state || !stateless) {
			return false
		}
	}
	return true
}

// checkClocks returns an error for clocks with a delay that is too small.
func (j *Job) checkClocks() error {
	for i := range j.Nodes {
		if n := &j.Nodes[i]; n.Clocks != 0 {
			if delay, ok := j.LeastDelay(i, n.ByProducer); !ok || n.Delay < delay || n.ByProducer && n.Clocks != KeyClocks {
				return fmt.Errorf("node %d: the answer with clocks is not that without (least delay %d, %t)", i, delay, ok)
			}
		}
	}
	return nil
}
