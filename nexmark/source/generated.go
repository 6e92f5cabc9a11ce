package source

import (
	"encoding/binary"
	"fmt"

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
	part := &generatedPartition{src: s, p: p, end: operators.MaxTime, newest: operators.MinTime}
	if n := s.gen.Config().Events; n > 0 {
		part.end = generator.Share(p, s.parts, n)
	}
	return part, nil
}

type generatedPartition struct {
	src    *Generated
	p      int
	next   int64 // of this partition's events
	end    int64
	newest int64
	buf    []byte
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

// Watermark implements operators.Partition.
func (p *generatedPartition) Watermark() int64 {
	return watermark(p.next >= p.end, p.newest, p.src.delay)
}

// Position implements operators.Partition: events made, newest time.
func (p *generatedPartition) Position(dst []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(dst, p.next), p.newest)
}

// Seek implements operators.Partition.
func (p *generatedPartition) Seek(position []byte) error {
	v, err := numbers(position, 2)
	if err != nil {
		return err
	}
	if v[0] < 0 || v[0] > p.end {
		return fmt.Errorf("position %d does not fit a generator of %d events", v[0], p.end)
	}
	p.next, p.newest = v[0], v[1]
	return nil
}

// Close implements operators.Partition.
func (p *generatedPartition) Close() error { return nil }
