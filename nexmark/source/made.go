package source

import (
	"sort"

	"tailrace.dev/tailrace/operators"
)

// Items makes the items of a workload. It is safe for concurrent use: item k is a function of k.
type Items[T any] interface {
	// Due returns the time in ms at which item k is sent.
	Due(k int64) int64
	// Make sets *v to item k and returns its event time.
	Make(k int64, v *T) (time int64)
}

// Made is the items of an Items as a source.
type Made[T any] struct {
	Items Items[T]
	// Count is the number of items; 0 means no end.
	Count int64
	// Parts is the number of partitions, at least 1. Find returns what finds the items of partition p;
	// if it is nil, partition p has every Parts-th item, from the p-th on.
	Parts int
	Find  func(p, parts int) Finder
	Delay int64 // as in NewFiles
	Paced bool  // as in NewGenerated
}

// Finder returns the number of a partition's first item in [from, to), and to if there is none. It
// makes no item: a partition pays little for those of the others.
type Finder func(from, to int64) int64

// Partitions implements operators.Source.
func (s *Made[T]) Partitions() int { return s.Parts }

// Open implements operators.Source.
func (s *Made[T]) Open(p int) (operators.Partition[T], error) {
	part := &madePartition[T]{sequence: newSequence(s.Delay), src: s, step: 1}
	if s.Count > 0 {
		part.end = s.Count
	}
	if s.Find != nil && s.Parts > 1 { // a single partition has all items
		part.find = s.Find(p, s.Parts)
	} else {
		part.step = int64(s.Parts)
		part.next = min(int64(p), part.end)
	}
	return part, nil
}

// mostSkipped is how many items a Read passes that are of other partitions, before it returns.
const mostSkipped = 1 << 16

// madePartition makes every step-th item, or those that find finds.
type madePartition[T any] struct {
	sequence
	src  *Made[T]
	find Finder
	step int64
}

// Read implements operators.Partition.
func (p *madePartition[T]) Read(b *operators.Batch[T], most int, now int64) (operators.Status, error) {
	var v T
	limit := p.next + mostSkipped
	for range most {
		if p.skip(limit, now); p.next >= p.end {
			return operators.Status{State: operators.Ended}, nil
		}
		if p.find != nil && p.next >= limit {
			return operators.Status{State: operators.Waiting, Due: now}, nil
		}
		if p.src.Paced {
			if due := p.src.Items.Due(p.next); due > now {
				return operators.Status{State: operators.Waiting, Due: due}, nil
			}
		}
		t := p.src.Items.Make(p.next, &v)
		p.next = min(p.next+p.step, p.end)
		p.newest = max(p.newest, t)
		b.Append(v, t)
	}
	return operators.Status{State: operators.More}, nil
}

// skip moves to the partition's next item, but neither beyond limit nor beyond what is due. The items of other partitions
// move event time to when they are sent: a partition without items would hold it.
func (p *madePartition[T]) skip(limit, now int64) {
	if p.find == nil || p.next >= p.end {
		return
	}
	due, from := p.src.Items.Due, p.next
	p.next = p.find(from, min(p.end, limit))
	if p.src.Paced && p.next > from && due(p.next-1) > now {
		p.next = from + int64(sort.Search(int(p.next-from), func(i int) bool { return due(from+int64(i)) > now }))
	}
	if p.next > from {
		p.newest = max(p.newest, due(p.next-1))
	}
}
