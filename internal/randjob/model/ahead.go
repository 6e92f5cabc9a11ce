package model

import (
	"fmt"
	"slices"
)

// Partitions returns the partition in which the source of node i, a KeyBy, has each key. ok is false if it is not a
// function of the key, if items change on their way from the source, or if the keyed flow meets another one.
func (j *Job) Partitions(i int) (of map[Key]int, ok bool) {
	n := &j.Nodes[i]
	source, ok := j.sourceOf(i)
	if !ok || !j.apart(i) {
		return nil, false
	}
	of = map[Key]int{}
	for p, part := range j.Nodes[source].Source.Parts {
		for _, e := range part.Events {
			row := e.Row()
			key := KeyOf(n.Key, n.Fn, &row)
			if at, known := of[key]; known && at != p {
				return nil, false
			}
			of[key] = p
		}
	}
	return of, true
}

// sourceOf returns the source of node i, if its items come as they are.
func (j *Job) sourceOf(i int) (source int, ok bool) {
	for i = j.Nodes[i].In[0]; j.Nodes[i].Op != Source; i = j.Nodes[i].In[0] {
		if !slices.Contains([]Op{Filter, Observe, Forward, Branch, Pick}, j.Nodes[i].Op) {
			return 0, false
		}
	}
	return i, true
}

// apart reports whether a keyed flow meets no other one where it has its keys.
func (j *Job) apart(of int) bool {
	for i := range j.Nodes {
		n := &j.Nodes[i]
		moves := n.Op == Sink || n.Op == Unkey || n.Op == Grouped || n.Op == WindowGroups || n.Global
		if slices.Contains(n.In, of) && !moves && (len(n.In) > 1 || !j.apart(i)) {
			return false
		}
	}
	return true
}

// Gather moves the events of the source of node i, a KeyBy, so that all of a key are in one partition. Where each
// partition's were out of order by so much, they still are by that at most.
func (j *Job) Gather(i int) {
	n := &j.Nodes[i]
	source, ok := j.sourceOf(i)
	if !ok {
		return
	}
	data := j.Nodes[source].Source
	type event struct {
		Event
		high int64 // the greatest time of its partition so far
	}
	var all []event
	for p := range data.Parts {
		high := int64(-1 << 62)
		for _, e := range data.Parts[p].Events {
			high = max(high, e.T)
			all = append(all, event{e, high})
		}
		data.Parts[p].Events = nil
	}
	slices.SortStableFunc(all, func(a, b event) int {
		if a.high != b.high {
			return map[bool]int{true: -1, false: 1}[a.high < b.high]
		}
		return 0
	})
	numbers := map[Key]int{}
	for _, e := range all {
		row := e.Row()
		key := KeyOf(n.Key, n.Fn, &row)
		if _, ok := numbers[key]; !ok {
			numbers[key] = len(numbers)
		}
		part := &data.Parts[numbers[key]%len(data.Parts)]
		part.Events = append(part.Events, e.Event)
	}
}

// checkAhead returns an error for a KeyBy that cannot be a KeyAhead and is one.
func (j *Job) checkAhead() error {
	for i := range j.Nodes {
		n := &j.Nodes[i]
		if n.Ahead {
			if _, ok := j.Partitions(i); !ok || n.Clocks != 0 || n.Groups != 0 || n.Parallelism != 0 {
				return fmt.Errorf("node %d: its keys are not those of partitions", i)
			}
		}
		if n.Global && n.InOrder {
			return fmt.Errorf("node %d: what is merged has no order", i)
		}
	}
	return nil
}
