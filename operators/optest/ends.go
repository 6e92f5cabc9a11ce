package optest

import (
	"encoding/binary"
	"fmt"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
)

// Timed is an item with its event time in ms.
type Timed[T any] struct {
	Time  int64
	Value T
}

// At makes a Timed.
func At[T any](time int64, v T) Timed[T] { return Timed[T]{time, v} }

// Items returns a source that has one partition for each slice. Its watermark is the greatest time
// read so far minus the delay: how far out of order the items are. Each Read returns a different
// number of items, at most five, so that batch boundaries vary.
func Items[T any](delay int64, partitions ...[]Timed[T]) operators.Source[T] {
	return &items[T]{delay, partitions}
}

type items[T any] struct {
	delay int64
	parts [][]Timed[T]
}

func (s *items[T]) Partitions() int { return len(s.parts) }
func (s *items[T]) Open(p int) (operators.Partition[T], error) {
	return &partition[T]{s: s, all: s.parts[p], w: exec.MinTime}, nil
}

type partition[T any] struct {
	s   *items[T]
	all []Timed[T]
	pos int
	w   int64
}

func (p *partition[T]) Read(b *operators.Batch[T], most int, _ int64) (operators.Status, error) {
	for range min(most, 1+p.pos%5) {
		if p.pos == len(p.all) {
			return operators.Status{State: operators.Ended}, nil
		}
		p.take(b)
	}
	return operators.Status{State: operators.More}, nil
}

func (p *partition[T]) take(b *operators.Batch[T]) {
	x := &p.all[p.pos]
	p.pos++
	p.w = max(p.w, x.Time-p.s.delay)
	if b != nil {
		b.Append(x.Value, x.Time)
	}
}

func (p *partition[T]) Watermark() int64 { return p.w }

func (p *partition[T]) Position(dst []byte) []byte { return binary.AppendUvarint(dst, uint64(p.pos)) }

func (p *partition[T]) Seek(position []byte) error {
	n, k := binary.Uvarint(position)
	if k <= 0 || n > uint64(len(p.all)) {
		return fmt.Errorf("position %x does not fit %d items", position, len(p.all))
	}
	for p.pos < int(n) {
		p.take(nil)
	}
	return nil
}

func (p *partition[T]) Close() error { return nil }

// Collector is a sink that keeps what it receives, exactly once: a restored writer drops what is
// behind its position.
type Collector[T any] struct {
	// Rows are the items in the order in which they came, Times their times.
	Rows  []T
	Times []int64
	clone func(v *T) T
}

// Collect returns a Collector. clone returns the copy of an item to keep, which must not alias it;
// with nil the Collector keeps the items themselves, cloned by the serde of the stream.
func Collect[T any](clone func(v *T) T) *Collector[T] { return &Collector[T]{clone: clone} }

// Keeps implements operators.Keeper.
func (c *Collector[T]) Keeps() bool { return c.clone == nil }

// Open makes the collector a Sink of one task.
func (c *Collector[T]) Open(_, of int) (operators.SinkWriter[T], error) {
	if of != 1 {
		return nil, fmt.Errorf("a Collector takes one task, not %d", of)
	}
	w := &collecting[T]{c: c, kept: c.Rows, times: c.Times}
	c.Rows, c.Times = nil, nil
	return w, nil
}

type collecting[T any] struct {
	c     *Collector[T]
	kept  []T // the previous writer's rows, for a restore
	times []int64
}

func (w *collecting[T]) Write(b *operators.Batch[T]) error {
	for i := range b.Items {
		v := b.Items[i]
		if w.c.clone != nil {
			v = w.c.clone(&v)
		}
		w.c.Rows = append(w.c.Rows, v)
		w.c.Times = append(w.c.Times, b.Times[i])
	}
	return nil
}

func (w *collecting[T]) Position(dst []byte) ([]byte, error) {
	return binary.AppendUvarint(dst, uint64(len(w.c.Rows))), nil
}

func (w *collecting[T]) Restore(position []byte) error {
	n, k := binary.Uvarint(position)
	if k <= 0 || n > uint64(len(w.kept)) {
		return fmt.Errorf("position %x does not fit %d rows", position, len(w.kept))
	}
	w.c.Rows, w.c.Times = w.kept[:n], w.times[:n]
	return nil
}

func (w *collecting[T]) Close() error { return nil }
