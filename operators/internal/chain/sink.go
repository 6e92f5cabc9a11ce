package chain

import (
	"fmt"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// sink writes what reaches a sink of the job.
type sink[T any] struct {
	name string
	sink connect.Sink[T]
	rt   exec.Runtime
	w    connect.SinkWriter[T]
	// fenced: w has its fence, if it needs one.
	fenced bool
	// clone, if set, clones items into own.
	clone serde.Serde[T]
	own   item.Batch[T]
}

// AddSink adds a sink of items with this serde, and returns what receives them.
func AddSink[T any](c *Chain, id int, name string, own connect.Sink[T], sd serde.Serde[T]) Emit[T] {
	to, err := sinkOf(c.RT, name, own)
	if err != nil {
		c.Fail(err)
		return func(*item.Batch[T]) error { return err }
	}
	s := &sink[T]{name: name, sink: to, rt: c.RT}
	if k, ok := to.(connect.Keeper); ok && k.Keeps() && !serde.Plain(sd) {
		s.clone = sd
	}
	c.Add(id, s)
	return s.Write
}

func (s *sink[T]) Open([]int) error {
	w, err := s.sink.Open(s.rt.Task())
	if err != nil {
		return fmt.Errorf("sink %q: %w", s.name, err)
	}
	s.w = w
	if err := attach(w, s.rt); err != nil {
		return fmt.Errorf("sink %q: %w", s.name, err)
	}
	return nil
}

func (s *sink[T]) Close() error {
	if s.w == nil {
		return nil
	}
	return s.w.Close()
}

// fence passes the fence to the writer.
func (s *sink[T]) fence() error {
	s.fenced = true
	if f, ok := s.w.(connect.Fenced); ok {
		if err := f.Fence(s.rt.Fence()); err != nil {
			return fmt.Errorf("sink %q: %w", s.name, err)
		}
	}
	return nil
}

func (s *sink[T]) Write(b *item.Batch[T]) error {
	if !s.fenced {
		if err := s.fence(); err != nil {
			return err
		}
	}
	if s.clone != nil {
		var err error
		if b, err = s.cloned(b); err != nil {
			return fmt.Errorf("sink %q: %w", s.name, err)
		}
	}
	if err := s.w.Write(b); err != nil {
		return fmt.Errorf("sink %q: %w", s.name, err)
	}
	if n := len(b.Times); n > 0 {
		s.rt.Arrived(b.Times[n-1])
	}
	return nil
}

// cloned returns a batch of clones. The sink may keep the items, but not the batch.
func (s *sink[T]) cloned(b *item.Batch[T]) (*item.Batch[T], error) {
	clear(s.own.Items[:cap(s.own.Items)])
	s.own.Reset()
	s.own.Group = b.Group
	s.own.Times = append(s.own.Times, b.Times...)
	for i := range b.Items {
		v, err := serde.Clone(s.clone, &b.Items[i])
		if err != nil {
			return nil, err
		}
		s.own.Items = append(s.own.Items, v)
	}
	return &s.own, nil
}

func (s *sink[T]) Holds() {}

func (s *sink[T]) Positions(dst []exec.Position) ([]exec.Position, error) {
	if !s.fenced {
		if err := s.fence(); err != nil {
			return dst, err
		}
	}
	v, err := s.w.Position(nil)
	if err != nil {
		return dst, fmt.Errorf("sink %q: %w", s.name, err)
	}
	return append(dst, exec.Position{Name: s.name, Value: v}), nil
}

func (s *sink[T]) Restore(p exec.Position) (bool, error) {
	if p.Name != s.name {
		return false, nil
	}
	return true, s.w.Restore(p.Value)
}
