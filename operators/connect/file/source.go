package file

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
)

// MaxLine is how many bytes a line, or a record of CSV, may have.
const MaxLine = 8 << 20

// Source is files of lines as an operators.Source. It is made by Lines, Text, JSON or CSV.
type Source[T any] struct {
	paths   []string
	options options
	parse   func(line []byte) (item T, time int64, err error)
	// end returns the length of the first record of b with its line feed, 0 if it is not whole.
	end func(b []byte) int
	bad atomic.Int64
}

type options struct {
	follow    bool
	skipBad   bool
	header    bool
	delay     int64
	idleAfter int64
}

// Option is an option of a source.
type Option func(*options)

// Follow reads what is appended to the files, for as long as the job runs. A file from which
// nothing has come for a second is Idle and holds event time no longer; see IdleAfter.
func Follow() Option { return func(o *options) { o.follow = true } }

// IdleAfter sets after how long without new lines a file that is followed is Idle.
func IdleAfter(d time.Duration) Option {
	return func(o *options) { o.idleAfter = d.Milliseconds() }
}

// Delay says by how much the time of an item may lie behind that of an item before it in its
// file. An item further behind is late. Without it the items of a file are in the order of time.
func Delay(d time.Duration) Option { return func(o *options) { o.delay = d.Milliseconds() } }

// SkipBad skips lines that cannot be parsed; Bad counts them. Without it the first such
// line fails the task, with a *LineError. A line of more than MaxLine bytes always does.
func SkipBad() Option { return func(o *options) { o.skipBad = true } }

// Header skips the first line of each file.
func Header() Option { return func(o *options) { o.header = true } }

// LineError is the error of a line that cannot be parsed.
type LineError struct {
	File string
	Line int64 // from 1; of a record of CSV, its number
	Err  error
}

// Error implements error.
func (e *LineError) Error() string { return fmt.Sprintf("%s, line %d: %v", e.File, e.Line, e.Err) }

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }

// Lines reads files of text. pattern is a path, or a pattern as in path/filepath.Match. parse
// makes an item and its event time (ms since 1970-01-01 UTC) of a line, which comes without its
// line feed (and carriage return). The line is valid until the task has processed the item, so
// an item may point into it. Blank lines are skipped.
func Lines[T any](pattern string, parse func(line []byte) (item T, time int64, err error), opts ...Option) (*Source[T], error) {
	return newSource(pattern, parse, lineEnd, opts)
}

// Text is Lines of text without times: each line is an item with the event time 0.
func Text(pattern string, opts ...Option) (*Source[string], error) {
	return Lines(pattern, func(line []byte) (string, int64, error) { return string(line), 0, nil }, opts...)
}

// JSON reads files of JSON Lines: one value of type T a line, decoded as encoding/json does.
// time returns an item's event time.
func JSON[T any](pattern string, time func(item *T) int64, opts ...Option) (*Source[T], error) {
	return newSource(pattern, func(line []byte) (item T, at int64, err error) {
		if err = json.Unmarshal(line, &item); err == nil {
			at = time(&item)
		}
		return item, at, err
	}, lineEnd, opts)
}

// CSV reads files of comma-separated values (RFC 4180). parse gets the fields of a record. A
// quoted field may hold line feeds.
func CSV[T any](pattern string, parse func(fields []string) (item T, time int64, err error), opts ...Option) (*Source[T], error) {
	return newSource(pattern, func(line []byte) (item T, at int64, err error) {
		r := csv.NewReader(bytes.NewReader(line))
		r.FieldsPerRecord = -1
		fields, err := r.Read()
		if err != nil {
			var bad *csv.ParseError // its line is that of the record
			if errors.As(err, &bad) {
				err = bad.Err
			}
			return item, 0, err
		}
		return parse(fields)
	}, recordEnd, opts)
}

func newSource[T any](pattern string, parse func([]byte) (T, int64, error), end func([]byte) int, opts []Option) (*Source[T], error) {
	paths := []string{pattern}
	if _, err := os.Stat(pattern); err != nil {
		if paths, err = filepath.Glob(pattern); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no file matches %q: %w", pattern, os.ErrNotExist)
	}
	s := &Source[T]{paths: paths, parse: parse, end: end, options: options{idleAfter: time.Second.Milliseconds()}}
	for _, o := range opts {
		o(&s.options)
	}
	return s, nil
}

// lineEnd returns the length of the first line with its line feed, 0 if there is none.
func lineEnd(b []byte) int { return bytes.IndexByte(b, '\n') + 1 }

// recordEnd is lineEnd of CSV: a line feed between quotes does not end a record. Quotes within a
// quoted field are doubled, so a record ends where an even number of them has come.
func recordEnd(b []byte) int {
	quoted := false
	for i, c := range b {
		switch {
		case c == '"':
			quoted = !quoted
		case c == '\n' && !quoted:
			return i + 1
		}
	}
	return 0
}

// Bad returns how many lines SkipBad has skipped in this process.
func (s *Source[T]) Bad() int64 { return s.bad.Load() }

// Partitions implements operators.Source: one a file, in the order of their paths.
func (s *Source[T]) Partitions() int { return len(s.paths) }

// Open implements operators.Source.
func (s *Source[T]) Open(p int) (connect.Partition[T], error) {
	f, err := os.Open(s.paths[p])
	if err != nil {
		return nil, err
	}
	return &partition[T]{src: s, path: s.paths[p], f: f, newest: exec.MinTime}, nil
}
