package operators

import "fmt"

// Sink is where items go to the outside.
type Sink[T any] interface {
	// Open returns what one task writes with. It is called once for each
	// instance of the task, and again after a crash, perhaps while an instance
	// that is believed dead still writes.
	Open(task, of int) (SinkWriter[T], error)
}

// SinkWriter is one task's end of a sink. What makes a job exactly-once up to
// the outside is that Write's effect is a function of what was written before,
// and that Restore goes back to a Position: whoever repeats a write writes the
// same.
type SinkWriter[T any] interface {
	// Write writes a batch, in order. It must not keep the batch's items.
	Write(b *Batch[T]) error
	// Position appends where the sink stands to dst. Everything written before
	// has left the process when it returns.
	Position(dst []byte) ([]byte, error)
	// Restore goes to a position that was returned once. Called before the
	// first Write, and not at all by the first instance.
	Restore(position []byte) error
	Close() error
}

// ToSink ends a flow in a sink. The sink is a stage of its own, because it has
// to read its items from the log (their order there is what decides where each
// goes), by default of one task.
func ToSink[T any](in Flow[T], name string, sink Sink[T], opts ...RouteOption) {
	o := route(opts)
	if o.parallelism == 0 {
		o.parallelism = 1
	}
	if o.groups == 0 {
		o.groups = o.parallelism
	}
	out := Rebalance(in, name, func(dst *routeOptions) { *dst = o }).n
	out.stage.sink = true
	out.subs = append(out.subs, func(c *chain) emit[T] {
		s := &sinkOp[T]{name: name, sink: sink, rt: c.rt}
		c.add(out.id, s)
		return s.write
	})
}

type sinkOp[T any] struct {
	name string
	sink Sink[T]
	rt   Runtime
	w    SinkWriter[T]
}

func (s *sinkOp[T]) open([]int) error {
	w, err := s.sink.Open(s.rt.Task())
	if err != nil {
		return fmt.Errorf("sink %q: %w", s.name, err)
	}
	s.w = w
	return nil
}

func (s *sinkOp[T]) close() error {
	if s.w == nil {
		return nil
	}
	return s.w.Close()
}

func (s *sinkOp[T]) write(b *Batch[T]) error {
	if err := s.w.Write(b); err != nil {
		return fmt.Errorf("sink %q: %w", s.name, err)
	}
	if n := len(b.Times); n > 0 {
		s.rt.Arrived(b.Times[n-1])
	}
	return nil
}

func (s *sinkOp[T]) positions(dst []Position) ([]Position, error) {
	v, err := s.w.Position(nil)
	if err != nil {
		return dst, fmt.Errorf("sink %q: %w", s.name, err)
	}
	return append(dst, Position{Name: s.name, Value: v}), nil
}

func (s *sinkOp[T]) restore(p Position) (bool, error) {
	if p.Name != s.name {
		return false, nil
	}
	return true, s.w.Restore(p.Value)
}

// FuncSink is a sink that calls f with every batch: for tests, and for programs
// that have a place of their own to put results. It has no position: after a
// crash f sees again what was written since the last commit.
func FuncSink[T any](f func(b *Batch[T]) error) Sink[T] { return funcSink[T](f) }

type funcSink[T any] func(b *Batch[T]) error

func (f funcSink[T]) Open(int, int) (SinkWriter[T], error) { return f, nil }
func (f funcSink[T]) Write(b *Batch[T]) error              { return f(b) }
func (f funcSink[T]) Position(dst []byte) ([]byte, error)  { return dst, nil }
func (f funcSink[T]) Restore([]byte) error                 { return nil }
func (f funcSink[T]) Close() error                         { return nil }
