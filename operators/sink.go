package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// Sink writes items to the outside.
type Sink[T any] interface {
	// Open returns what one task writes with. It is called once for each
	// instance of the task, and again after a crash, perhaps while an instance
	// that is believed dead still writes.
	Open(task, of int) (SinkWriter[T], error)
}

// Keeper is implemented by sinks that say whether they keep items after Write: a sink
// that does gets clones, made by the serde of the stream, and any other gets items that
// alias the log's memory and are garbage soon after.
type Keeper interface{ Keeps() bool }

// SinkWriter is one task's end of a sink. What makes a job exactly-once up to
// the outside is that Write's effect is a function of what was written before,
// and that Restore goes back to a Position: whoever repeats a write writes the
// same.
type SinkWriter[T any] interface {
	// Write writes a batch, in order. It must not keep the batch, nor its items unless
	// the sink is a Keeper.
	Write(b *Batch[T]) error
	// Position appends the sink's position to dst. When it returns, everything written before has
	// left the process.
	Position(dst []byte) ([]byte, error)
	// Restore goes to a position that was returned before. It is called before the first Write, and
	// never for the first instance.
	Restore(position []byte) error
	Close() error
}

// Fenced is implemented by writers that do to the outside what another instance of the
// task must not undergo, such as to remove what was written and not committed. A writer
// that wraps another one passes Fence on.
type Fenced interface {
	// Fence is called once, after Restore and before the first Write or Position.
	Fence(f Fence) error
}

// Appender is implemented by sinks whose rows are records of the log that the job runs on, appended
// with the commits of their task (package logtag).
type Appender interface {
	// AppendsTo returns the tag of the records.
	AppendsTo() (tag string)
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
	if a, ok := sink.(Appender); ok {
		out.stage.appends = a.AppendsTo()
	}
	out.subs = append(out.subs, func(c *chain) emit[T] {
		sink, err := sinkOf(c.rt, name, sink)
		if err != nil {
			c.errs = append(c.errs, err)
			return func(*Batch[T]) error { return err }
		}
		s := &sinkOp[T]{name: name, sink: sink, rt: c.rt}
		if k, ok := sink.(Keeper); ok && k.Keeps() && !serde.Plain(out.sd) {
			s.clone = out.sd
		}
		c.add(out.id, s)
		return s.write
	})
}

type sinkOp[T any] struct {
	name string
	sink Sink[T]
	rt   Runtime
	w    SinkWriter[T]
	// fenced: w has its fence, if it needs one.
	fenced bool
	// clone, if set, clones items into own.
	clone serde.Serde[T]
	own   Batch[T]
}

func (s *sinkOp[T]) open([]int) error {
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

func (s *sinkOp[T]) close() error {
	if s.w == nil {
		return nil
	}
	return s.w.Close()
}

// fence passes the fence to the writer.
func (s *sinkOp[T]) fence() error {
	s.fenced = true
	if f, ok := s.w.(Fenced); ok {
		if err := f.Fence(s.rt.Fence()); err != nil {
			return fmt.Errorf("sink %q: %w", s.name, err)
		}
	}
	return nil
}

func (s *sinkOp[T]) write(b *Batch[T]) error {
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
func (s *sinkOp[T]) cloned(b *Batch[T]) (*Batch[T], error) {
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

func (s *sinkOp[T]) holds() {}

func (s *sinkOp[T]) positions(dst []exec.Position) ([]exec.Position, error) {
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

func (s *sinkOp[T]) restore(p exec.Position) (bool, error) {
	if p.Name != s.name {
		return false, nil
	}
	return true, s.w.Restore(p.Value)
}

// FuncSink is a sink that calls f with every batch: for tests, and for programs
// that have a place of their own to put results. f may keep items, but not the batch. The
// sink has no position: after a crash f sees again what was written since the last commit.
func FuncSink[T any](f func(b *Batch[T]) error) Sink[T] { return funcSink[T]{f, true} }

// BorrowedFuncSink is FuncSink for an f that keeps no items, nor any string or slice that
// is in one: they are not cloned, and alias memory that is used again when f has returned.
func BorrowedFuncSink[T any](f func(b *Batch[T]) error) Sink[T] { return funcSink[T]{f, false} }

type funcSink[T any] struct {
	f     func(b *Batch[T]) error
	keeps bool
}

func (f funcSink[T]) Keeps() bool                          { return f.keeps }
func (f funcSink[T]) Open(int, int) (SinkWriter[T], error) { return f, nil }
func (f funcSink[T]) Write(b *Batch[T]) error              { return f.f(b) }
func (f funcSink[T]) Position(dst []byte) ([]byte, error)  { return dst, nil }
func (f funcSink[T]) Restore([]byte) error                 { return nil }
func (f funcSink[T]) Close() error                         { return nil }
