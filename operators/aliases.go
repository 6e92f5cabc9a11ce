package operators

import (
	"io"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// The part of packages exec and state that programs use which define jobs, sources and sinks.
type (
	// Plan is a job cut at its repartitions into stages, which a runtime runs.
	Plan = exec.Plan
	// Runtime is what a task provides for its operators, sources and sinks.
	Runtime = exec.Runtime
	// Fence keeps the instances of a task apart where the log cannot.
	Fence = exec.Fence
	// Elem is a value of a List.
	Elem[V any] = state.Elem[V]
)

// Items of streams (package item).
type (
	// Batch is a run of items with their event times, all of one key group.
	Batch[T any] = item.Batch[T]
	// KV is an item of a keyed stream.
	KV[K, V any] = item.KV[K, V]
	// Change is a change of a table: the key's value from now on, or that it has none.
	Change[K, V any] = item.Change[K, V]
	// Update is a change of one key's value, with its kind.
	Update[V any] = item.Update[V]
	// Kind says what an Update does to the value of a key.
	Kind = item.Kind
	// Windowed is a result of a window: its bounds in ms, end exclusive, and the value.
	Windowed[A any] = item.Windowed[A]
	// Counted is a result of AggregateEvery or AggregateLast.
	Counted[A any] = item.Counted[A]
	// Pane is a partial result of PreAggregate, Part one of GlobalMerge: what one key group has of a key.
	Pane[A any] = item.Pane[A]
	Part[A any] = fold.Part[A]
)

// The kinds of updates.
const (
	// Insert: the key had no value and has this one.
	Insert = item.Insert
	// UpdateBefore: the key had this value and has another one, which follows at once.
	UpdateBefore = item.UpdateBefore
	// UpdateAfter: the key has this value instead.
	UpdateAfter = item.UpdateAfter
	// Delete: the key had this value and has none.
	Delete = item.Delete
)

// UpdateSerde encodes updates: the kind as a byte, and the value.
func UpdateSerde[V any](vals serde.Serde[V]) serde.Serde[Update[V]] { return item.UpdateSerde(vals) }

// WindowedSerde returns the serde of a window's result.
func WindowedSerde[A any](of serde.Serde[A]) serde.Serde[Windowed[A]] { return item.WindowedSerde(of) }

// CountedSerde returns the serde of a result of AggregateEvery.
func CountedSerde[A any](of serde.Serde[A]) serde.Serde[Counted[A]] { return item.CountedSerde(of) }

// The contract of sources and sinks (package connect).
type (
	// Source reads items from outside.
	Source[T any] = connect.Source[T]
	// Partition is one partition of a source.
	Partition[T any] = connect.Partition[T]
	// Status is the state of a partition after a Read.
	Status = connect.Status
	// ReadState is what a Read found.
	ReadState = connect.ReadState
	// Sink writes items to the outside.
	Sink[T any] = connect.Sink[T]
	// SinkWriter is one task's end of a sink.
	SinkWriter[T any] = connect.SinkWriter[T]
	// Keeper is implemented by sinks that say whether they keep items after Write.
	Keeper = connect.Keeper
	// Fenced is implemented by writers that do to the outside what another instance of the task
	// must not undergo.
	Fenced = connect.Fenced
	// Appender is implemented by sinks whose rows are records of the log that the job runs on.
	Appender = connect.Appender
	// Attached is implemented by partitions and writers that need their task's Runtime.
	Attached = connect.Attached
)

// ReadBytes is about how many bytes of items one Read of a partition returns at most.
const ReadBytes = connect.ReadBytes

// What a Read of a partition found.
const (
	// More: there may be more to read at once.
	More = connect.More
	// Waiting: there is nothing before Due.
	Waiting = connect.Waiting
	// Idle: there is nothing, and it is unknown when there will be.
	Idle = connect.Idle
	// Ended: there is nothing, for ever.
	Ended = connect.Ended
)

// FuncSink is a sink that calls f with every batch; see connect.FuncSink.
func FuncSink[T any](f func(b *Batch[T]) error) Sink[T] { return connect.FuncSink(f) }

// BorrowedFuncSink is FuncSink for an f that keeps no items, nor any string or slice that is in one.
func BorrowedFuncSink[T any](f func(b *Batch[T]) error) Sink[T] { return connect.BorrowedFuncSink(f) }

// FileSink returns a sink that writes rows to a file; see file.Sink.
func FileSink[T any](path string, row func(dst []byte, v *T) []byte, sync bool) Sink[T] {
	return file.Sink(path, row, sync)
}

// WriterSink is FileSink for a writer that cannot be truncated.
func WriterSink[T any](to io.Writer, row func(dst []byte, v *T) []byte) Sink[T] {
	return file.WriterSink(to, row)
}

// Watermark values at the two ends of time, in ms since 1970-01-01 UTC.
const (
	// MinTime is the watermark of a producer that has promised nothing yet.
	MinTime = exec.MinTime
	// MaxTime is the watermark at the end of input: no further items come.
	MaxTime = exec.MaxTime
)
