package logtag

import (
	"fmt"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/sharedlog"
)

// Sink returns a sink that appends each item to the log, as one record with the tag, whose data are
// the bytes that row appends: at most MaxRow. With several tasks (operators.Parallelism) the rows of
// each are in order, and those of different tasks in the order of their commits. A job that is
// started again under another name, or from a savepoint, appends its rows again.
func Sink[T any](tag string, row func(dst []byte, v *T) []byte) (connect.Sink[T], error) {
	if err := check(sharedlog.Tag(tag)); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	return &sink[T]{sharedlog.Tag(tag), row}, nil
}

type sink[T any] struct {
	tag sharedlog.Tag
	row func(dst []byte, v *T) []byte
}

// AppendsTo implements operators.Appender.
func (s *sink[T]) AppendsTo() string { return string(s.tag) }

// Open implements operators.Sink.
func (s *sink[T]) Open(int, int) (connect.SinkWriter[T], error) { return &writer[T]{sink: s}, nil }

// writer is the sink of one task. What it has written is the task's, which appends it with its
// commit or, if there is none, loses it: the writer itself stands nowhere.
type writer[T any] struct {
	*sink[T]
	task Task
	// page holds rows one behind the other. The log keeps them.
	page []byte
}

const pageBytes = 32 << 10

// Attach implements operators.Attached.
func (w *writer[T]) Attach(rt exec.Runtime) (err error) {
	w.task, err = taskOf(rt, "a sink", w.tag)
	return err
}

// Write implements operators.SinkWriter.
func (w *writer[T]) Write(b *item.Batch[T]) error {
	for i := range b.Items {
		if cap(w.page)-len(w.page) < pageBytes/8 {
			w.page = make([]byte, 0, pageBytes)
		}
		from := len(w.page)
		w.page = w.row(w.page, &b.Items[i])
		row := w.page[from:len(w.page):len(w.page)]
		if len(row) > MaxRow {
			return fmt.Errorf("tag %q: a row has %d bytes, at most %d are allowed", w.tag, len(row), MaxRow)
		}
		if err := w.task.Row(w.tag, row); err != nil {
			return err
		}
	}
	return nil
}

// Position implements operators.SinkWriter.
func (w *writer[T]) Position(dst []byte) ([]byte, error) { return dst, nil }

// Restore implements operators.SinkWriter.
func (w *writer[T]) Restore([]byte) error { return nil }

// Close implements operators.SinkWriter.
func (w *writer[T]) Close() error { return nil }
