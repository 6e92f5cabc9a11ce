package exec

import (
	"errors"
	"fmt"
)

// Abort implements operators.Fail: it panics with a value that Failed recognizes.
func Abort(err error) {
	if err == nil {
		err = errors.New("given up without an error")
	}
	panic(&failure{err})
}

// failure is the value that Abort panics with.
type failure struct{ err error }

func (f *failure) String() string { return f.err.Error() }

// Failed returns the error that Abort was called with, if p is the value of its panic.
func Failed(p any) (err error, ok bool) {
	f, ok := p.(*failure)
	if !ok {
		return nil, false
	}
	return f.err, true
}

// ItemError says that a single item cannot be processed: trying the same item again would fail, and
// the other items can be processed.
type ItemError struct{ Err error }

// Error implements error.
func (e *ItemError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *ItemError) Unwrap() error { return e.Err }

// JobError says that the job is wrong: its own code is to blame, and leaving out an item would not help.
type JobError struct{ Err error }

// Error implements error.
func (e *JobError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *JobError) Unwrap() error { return e.Err }

// Item describes an item that was passed to a chain.
type Item struct {
	Time int64
	// Key is the item's key, for people; empty in a flow without keys.
	Key string
	// Text is the item, for people.
	Text string
	// Data is the item in its stream's serde, without its time; nil if it has none.
	Data []byte
	// Broken: it cannot be decoded, so Data is the rest of its section.
	Broken bool
}

// Name identifies an item of a source.
func (it *Item) Name() string {
	if it.Data != nil {
		return fmt.Sprintf("%d %x", it.Time, it.Data)
	}
	return fmt.Sprintf("%d %s", it.Time, it.Text)
}
