package source

import (
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
)

// Paced returns a source that yields at most rate events a second of src, divided evenly among its
// partitions, counted from each partition's first read.
func Paced(src operators.Source[event.Raw], rate int64) operators.Source[event.Raw] {
	return &paced{src, rate}
}

type paced struct {
	operators.Source[event.Raw]
	rate int64
}

func (s *paced) Open(p int) (operators.Partition[event.Raw], error) {
	part, err := s.Source.Open(p)
	return &pacedPartition{Partition: part, rate: s.rate, parts: int64(s.Partitions())}, err
}

type pacedPartition struct {
	operators.Partition[event.Raw]
	rate, parts int64
	begun, made int64
}

func (p *pacedPartition) Read(b *operators.Batch[event.Raw], most int, now int64) (operators.Status, error) {
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
