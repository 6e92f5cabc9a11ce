package logtag

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
)

// Source is records of the log as an operators.Source. It is made by Records or JSON.
type Source[T any] struct {
	tags    []sharedlog.Tag
	options options
	parse   func(record []byte) (item T, time int64, err error)
	bad     atomic.Int64
}

type options struct {
	more        []string
	from        sharedlog.LSN
	untilTail   bool
	skipBad     bool
	skipMissing bool
	delay       int64
	idleAfter   int64
}

// Option is an option of a source.
type Option func(*options)

// And reads further tags, each of which is a partition. A record that carries two of the tags is
// read twice.
func And(tags ...string) Option {
	return func(o *options) { o.more = append(o.more, tags...) }
}

// From begins at an LSN; records below are not read. Without it a source begins with the oldest
// record of the tag that has not been trimmed.
func From(lsn sharedlog.LSN) Option { return func(o *options) { o.from = lsn } }

// UntilTail ends a partition at the tail that the log has when the job first reads it. A restarted
// task keeps that end.
func UntilTail() Option { return func(o *options) { o.untilTail = true } }

// IdleAfter sets after how long without new records a partition is Idle and holds event time no
// longer. Default: a second.
func IdleAfter(d time.Duration) Option {
	return func(o *options) { o.idleAfter = d.Milliseconds() }
}

// Delay says by how much the time of an item may lie behind that of an item before it in its
// partition. An item further behind is late. Without it the items of a partition are in the order
// of time.
func Delay(d time.Duration) Option { return func(o *options) { o.delay = d.Milliseconds() } }

// SkipBad skips records that cannot be parsed; Bad counts them. Without it the first such
// record fails the task, with a *RecordError.
func SkipBad() Option { return func(o *options) { o.skipBad = true } }

// SkipMissing continues with the next record that is left when records were trimmed before the job
// has read them, or were given up (tailrace log rescue). Without it they fail the task. If records
// are missing that a task was in the middle of, records behind the gap may be skipped as well, up
// to the rest of a batch.
func SkipMissing() Option { return func(o *options) { o.skipMissing = true } }

// RecordError is the error of a record that cannot be parsed.
type RecordError struct {
	Tag sharedlog.Tag
	LSN sharedlog.LSN
	Err error
}

// Error implements error.
func (e *RecordError) Error() string {
	return fmt.Sprintf("tag %q, record %d: %v", e.Tag, e.LSN, e.Err)
}

// Unwrap returns the reason.
func (e *RecordError) Unwrap() error { return e.Err }

// Records reads the records of a tag. parse makes an item and its event time (ms since 1970-01-01
// UTC) of a record's data, which are valid until the task has processed the item, so an item may
// point into them. parse is a function of the data alone, because it is called again after a
// restart.
func Records[T any](tag string, parse func(record []byte) (item T, time int64, err error), opts ...Option) (*Source[T], error) {
	s := &Source[T]{parse: parse, options: options{more: []string{tag}, idleAfter: time.Second.Milliseconds()}}
	for _, o := range opts {
		o(&s.options)
	}
	for _, t := range s.options.more {
		if err := check(sharedlog.Tag(t)); err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
		if slices.Contains(s.tags, sharedlog.Tag(t)) {
			return nil, fmt.Errorf("source: %w", sharedlog.Errorf(sharedlog.KindInvalid, "tag %q is given twice", t))
		}
		s.tags = append(s.tags, sharedlog.Tag(t))
	}
	return s, nil
}

// JSON reads the records of a tag as values of type T, decoded as encoding/json does. time returns
// an item's event time.
func JSON[T any](tag string, time func(item *T) int64, opts ...Option) (*Source[T], error) {
	return Records(tag, func(record []byte) (item T, at int64, err error) {
		if err = json.Unmarshal(record, &item); err == nil {
			at = time(&item)
		}
		return item, at, err
	}, opts...)
}

// Bad returns how many records SkipBad has skipped in this process.
func (s *Source[T]) Bad() int64 { return s.bad.Load() }

// Partitions implements operators.Source: one a tag, in the order in which they were given.
func (s *Source[T]) Partitions() int { return len(s.tags) }

// Open implements operators.Source.
func (s *Source[T]) Open(p int) (connect.Partition[T], error) {
	return &partition[T]{src: s, tag: s.tags[p], next: s.options.from, newest: exec.MinTime}, nil
}
