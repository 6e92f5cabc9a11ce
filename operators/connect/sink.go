package connect

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
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

// SinkWriter is one task's end of a sink. Two properties make a job exactly-once up to the outside:
// the effect of Write is a function of what was written before, and Restore goes back to a Position.
// So a writer that repeats a write writes the same.
type SinkWriter[T any] interface {
	// Write writes a batch, in order. It must not keep the batch, nor its items unless
	// the sink is a Keeper.
	Write(b *item.Batch[T]) error
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
	Fence(f exec.Fence) error
}

// Appender is implemented by sinks whose rows are records of the log that the job runs on, appended
// with the commits of their task (package logtag).
type Appender interface {
	// AppendsTo returns the tag of the records.
	AppendsTo() (tag string)
}

// FuncSink is a sink that calls f with every batch: for tests, and for programs
// that have a place of their own to put results. f may keep items, but not the batch. The
// sink has no position: after a crash f sees again what was written since the last commit.
func FuncSink[T any](f func(b *item.Batch[T]) error) Sink[T] { return funcSink[T]{f, true} }

// BorrowedFuncSink is FuncSink for an f that keeps no items, nor any string or slice that
// is in one: they are not cloned, and alias memory that is used again when f has returned.
func BorrowedFuncSink[T any](f func(b *item.Batch[T]) error) Sink[T] { return funcSink[T]{f, false} }

type funcSink[T any] struct {
	f     func(b *item.Batch[T]) error
	keeps bool
}

func (f funcSink[T]) Keeps() bool                          { return f.keeps }
func (f funcSink[T]) Open(int, int) (SinkWriter[T], error) { return f, nil }
func (f funcSink[T]) Write(b *item.Batch[T]) error         { return f.f(b) }
func (f funcSink[T]) Position(dst []byte) ([]byte, error)  { return dst, nil }
func (f funcSink[T]) Restore([]byte) error                 { return nil }
func (f funcSink[T]) Close() error                         { return nil }
