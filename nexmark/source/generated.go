package source

import (
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/operators"
)

// Generated is the generator as a source. Its partitions share one id space.
type Generated struct {
	gen   *generator.Generator
	parts int
	delay int64
	paced bool
}

// NewGenerated returns a source over a generator. delay is as in NewFiles. With paced, an event
// arrives when the wall clock reaches its time (open loop: it does not wait for the query);
// without, events arrive as fast as they are read.
func NewGenerated(gen *generator.Generator, partitions int, delay int64, paced bool) *Generated {
	return &Generated{gen: gen, parts: partitions, delay: delay, paced: paced}
}

// Partitions implements operators.Source.
func (s *Generated) Partitions() int { return s.parts }

// Open implements operators.Source.
func (s *Generated) Open(p int) (operators.Partition[event.Raw], error) {
	part := &generatedPartition{sequence: newSequence(s.delay), src: s, p: p}
	if n := s.gen.Config().Events; n > 0 {
		part.end = generator.Share(p, s.parts, n)
	}
	return part, nil
}

type generatedPartition struct {
	sequence
	src *Generated
	p   int
	buf []byte
}

// Read implements operators.Partition.
func (p *generatedPartition) Read(b *operators.Batch[event.Raw], most int, now int64) (operators.Status, error) {
	if cap(p.buf) == 0 {
		p.buf = make([]byte, 0, 256<<10)
	}
	p.buf = p.buf[:0]
	for range most {
		if p.next >= p.end {
			return operators.Status{State: operators.Ended}, nil
		}
		k := generator.Arrival(p.p, p.src.parts, p.next)
		if p.src.paced {
			if due := p.src.gen.Due(k); due > now {
				return operators.Status{State: operators.Waiting, Due: due}, nil
			}
		}
		from := len(p.buf)
		p.buf = p.src.gen.Append(p.buf, k)
		raw := event.Raw(p.buf[from:len(p.buf):len(p.buf)])
		t := raw.Time()
		p.newest = max(p.newest, t)
		b.Append(raw, t)
		p.next++
	}
	return operators.Status{State: operators.More}, nil
}
