package source

import "tailrace.dev/tailrace/operators"

// Paced returns a source that yields at most rate items a second of src, divided evenly among its
// partitions, counted from each partition's first read.
func Paced[T any](src operators.Source[T], rate int64) operators.Source[T] {
	return &paced[T]{src, rate}
}

type paced[T any] struct {
	operators.Source[T]
	rate int64
}

func (s *paced[T]) Open(p int) (operators.Partition[T], error) {
	part, err := s.Source.Open(p)
	return &pacedPartition[T]{Partition: part, rate: s.rate, parts: int64(s.Partitions())}, err
}

type pacedPartition[T any] struct {
	operators.Partition[T]
	rate, parts int64
	begun, made int64
}

func (p *pacedPartition[T]) Read(b *operators.Batch[T], most int, now int64) (operators.Status, error) {
	if p.begun == 0 {
		p.begun = now
	}
	due := (now-p.begun)*p.rate/(1000*p.parts) - p.made
	if due <= 0 {
		return operators.Status{State: operators.Waiting, Due: p.begun + ((p.made+1)*1000*p.parts+p.rate-1)/p.rate}, nil
	}
	before := b.Len()
	st, err := p.Partition.Read(b, min(most, int(due)), now)
	p.made += int64(b.Len() - before)
	return st, err
}
