// Package slice reads slices as a source of a job, for examples and for programs that have their
// input in memory:
//
//	orders := slice.Of(all, func(o *Order) int64 { return o.At })
//	…
//	stream := operators.FromSource(job, "orders", orders, serde.JSON[Order]())
//
// A partition's position is exact, so a job that restarts needs the same slices again: a position
// behind their end is an error. In tests of a job use optest.Items, which also varies how much is
// read at once.
package slice

import (
	"encoding/binary"
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
)

// Source is slices as an operators.Source, each a partition.
type Source[T any] struct {
	parts [][]T
	time  func(*T) int64
	delay int64
}

// Of returns a source of the items of a slice; time returns an item's event time (ms since 1970-01-01
// UTC). The slice must not change while the job runs.
func Of[T any](items []T, time func(item *T) int64) *Source[T] {
	return &Source[T]{parts: [][]T{items}, time: time}
}

// And adds a slice, as a further partition.
func (s *Source[T]) And(items []T) *Source[T] {
	return &Source[T]{parts: append(s.parts[:len(s.parts):len(s.parts)], items), time: s.time, delay: s.delay}
}

// Delay says by how much the time of an item may lie behind that of an item before it in its slice.
// An item further behind is late.
func (s *Source[T]) Delay(d time.Duration) *Source[T] {
	return &Source[T]{parts: s.parts, time: s.time, delay: d.Milliseconds()}
}

// Partitions implements operators.Source.
func (s *Source[T]) Partitions() int { return len(s.parts) }

// Open implements operators.Source.
func (s *Source[T]) Open(p int) (connect.Partition[T], error) {
	return &partition[T]{src: s, items: s.parts[p], newest: exec.MinTime}, nil
}

type partition[T any] struct {
	src    *Source[T]
	items  []T
	pos    int
	newest int64
}

// Read implements operators.Partition.
func (p *partition[T]) Read(b *item.Batch[T], most int, _ int64) (connect.Status, error) {
	for n := 0; n < most && p.pos < len(p.items); n++ {
		p.take(b)
	}
	if p.pos == len(p.items) {
		return connect.Status{State: connect.Ended}, nil
	}
	return connect.Status{State: connect.More}, nil
}

// take passes the next item, if b is not nil.
func (p *partition[T]) take(b *item.Batch[T]) {
	at := p.src.time(&p.items[p.pos])
	p.newest = max(p.newest, at)
	if b != nil {
		b.Append(p.items[p.pos], at)
	}
	p.pos++
}

// Watermark implements operators.Partition.
func (p *partition[T]) Watermark() int64 {
	if p.newest < exec.MinTime+p.src.delay {
		return exec.MinTime
	}
	return p.newest - p.src.delay
}

// Position implements operators.Partition: how many items are read, as a varint.
func (p *partition[T]) Position(dst []byte) []byte { return binary.AppendUvarint(dst, uint64(p.pos)) }

// Seek implements operators.Partition.
func (p *partition[T]) Seek(position []byte) error {
	n, k := binary.Uvarint(position)
	if k <= 0 || k != len(position) || n > uint64(len(p.items)) {
		return fmt.Errorf("position %x does not fit a slice of %d items: has it changed since the job began?", position, len(p.items))
	}
	for p.pos < int(n) {
		p.take(nil)
	}
	return nil
}

// Close implements operators.Partition.
func (p *partition[T]) Close() error { return nil }
