package source

import "tailrace.dev/tailrace/operators"

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
	// Parts is the number of partitions, at least 1. Partition says which of them an item is in; if it
	// is nil, partition p has every Parts-th item, from the p-th on.
	Parts     int
	Partition func(v *T, parts int) int
	Delay     int64 // as in NewFiles
	Paced     bool  // as in NewGenerated
}

// Partitions implements operators.Source.
func (s *Made[T]) Partitions() int { return s.Parts }

// Open implements operators.Source.
func (s *Made[T]) Open(p int) (operators.Partition[T], error) {
	part := &madePartition[T]{sequence: newSequence(s.Delay), src: s, p: p, step: 1}
	if s.Count > 0 {
		part.end = s.Count
	}
	if s.Partition == nil {
		part.step = int64(s.Parts)
		part.next = min(int64(p), part.end)
	}
	return part, nil
}

// mostSkipped is how many items of other partitions a Read skips before it returns without any.
const mostSkipped = 1 << 16

// madePartition makes every step-th item, and leaves out those of other partitions.
type madePartition[T any] struct {
	sequence
	src  *Made[T]
	p    int
	step int64
}

// Read implements operators.Partition.
func (p *madePartition[T]) Read(b *operators.Batch[T], most int, now int64) (operators.Status, error) {
	var v T
	s := p.src
	for n, skipped := 0, 0; n < most; {
		if p.next >= p.end {
			return operators.Status{State: operators.Ended}, nil
		}
		if s.Paced {
			if due := s.Items.Due(p.next); due > now {
				return operators.Status{State: operators.Waiting, Due: due}, nil
			}
		}
		t := s.Items.Make(p.next, &v)
		p.next = min(p.next+p.step, p.end)
		// Items of other partitions count, too: a partition without items would hold event time.
		p.newest = max(p.newest, t)
		if s.Partition == nil || s.Partition(&v, s.Parts) == p.p {
			b.Append(v, t)
			n++
		} else if skipped++; skipped == mostSkipped {
			return operators.Status{State: operators.Waiting, Due: now}, nil
		}
	}
	return operators.Status{State: operators.More}, nil
}
