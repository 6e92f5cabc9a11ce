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
	return j.disorder(i, byProducer)
}

// disorder returns how far out of order the items of a key come to node i, at most.
func (j *Job) disorder(i int, byProducer bool) (delay int64, ok bool) {
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

// OwnDelay is LeastDelay of clocks of single keys for a KeyBy behind a source that has each key in one partition: how far
// items are behind others of their key.
func (j *Job) OwnDelay(i int) (delay int64, ok bool) {
	if j.Nodes[i].Op != KeyBy || !j.ends(i, false) {
		return 0, false
	}
	if _, ok := j.Partitions(i); !ok {
		return 0, false
	}
	n, newest := &j.Nodes[i], map[Key]int64{}
	source, _ := j.sourceOf(i)
	for _, p := range j.Nodes[source].Source.Parts {
		for _, e := range p.Events {
			row := e.Row()
			key := KeyOf(n.Key, n.Fn, &row)
			if at, known := newest[key]; known {
				delay = max(delay, at-e.T)
				newest[key] = max(at, e.T)
			} else {
				newest[key] = e.T
			}
		}
	}
	return delay, true
}

// joins are the ops that compare the times of two streams.
var joins = []Op{JoinStreams, LeftJoinStreams, RightJoinStreams, OuterJoinStreams, JoinWindows}

// Joined returns the KeyBys whose flows meet that of node i in joins of streams, i among them, and the least delay with
// which all of them can have clocks (LeastDelay). ok is false if there is none, or if node i meets no other.
func (j *Job) Joined(i int) (all []int, delay int64, ok bool) {
	all = []int{i}
	for k := 0; k < len(all); k++ {
		if j.Nodes[all[k]].Op != KeyBy || !j.meets(all[k], &all) {
			return nil, 0, false
		}
		least, ok := j.disorder(all[k], false)
		if !ok {
			return nil, 0, false
		}
		delay = max(delay, least)
	}
	return all, delay, len(all) > 1
}

// meets adds the KeyBys whose flows a keyed flow meets, and reports whether it meets them in joins of streams only, behind
// which there is no other operator with state.
func (j *Job) meets(of int, all *[]int) bool {
	for i := range j.Nodes {
		n := &j.Nodes[i]
		if !slices.Contains(n.In, of) {
			continue
		}
		if !slices.Contains(joins, n.Op) {
			only := len(n.In) == 1 && slices.Contains([]Op{MapValues, FilterValues}, n.Op)
			if n.Op != Sink && n.Op != Unkey && (!only || !j.meets(i, all)) {
				return false
			}
			continue
		}
		for _, k := range n.In {
			for slices.Contains([]Op{MapValues, FilterValues}, j.Nodes[k].Op) {
				k = j.Nodes[k].In[0]
			}
			if !slices.Contains(*all, k) {
				*all = append(*all, k)
			}
		}
		if !j.ends(i, true) {
			return false
		}
	}
	return true
}

// checkClocks returns an error for clocks with a delay that is too small.
func (j *Job) checkClocks() error {
	for i := range j.Nodes {
		n := &j.Nodes[i]
		if n.Clocks == 0 {
			continue
		}
		delay, ok := j.LeastDelay(i, n.ByProducer)
		if own, single := j.OwnDelay(i); single && n.Clocks < 0 {
			delay, ok = min(delay, own), true
		}
		if !ok {
			var all []int
			all, delay, ok = j.Joined(i)
			for _, k := range all {
				ok = ok && j.Nodes[k].Clocks == n.Clocks && j.Nodes[k].Delay == n.Delay && !n.ByProducer
			}
		}
		if !ok || n.Delay < delay || n.ByProducer && n.Clocks != KeyClocks {
			return fmt.Errorf("node %d: the answer with clocks is not that without (least delay %d, %t)", i, delay, ok)
		}
	}
	return nil
}
