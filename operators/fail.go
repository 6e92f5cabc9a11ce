package operators

import (
	"errors"
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// Fail gives up the item, or the timer, for which a function of the job is being called, and does
// not return. The job's --on-error decides what happens: the task fails, the item is skipped, or it
// goes to the dead letters, with err. What the item had changed or emitted by then is undone.
//
// Any function of a job may call it, from the goroutine that the function is called in.
func Fail(err error) {
	if err == nil {
		err = errors.New("given up without an error")
	}
	panic(&failure{err})
}

// failure is the value that Fail panics with.
type failure struct{ err error }

func (f *failure) String() string { return f.err.Error() }

// Failed returns the error that Fail was called with, if p is the value of its panic.
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

// brief is how much of an item or a key is shown.
const brief = 200

func show(v any) string {
	text := fmt.Sprintf("%+v", v)
	if len(text) > brief {
		return fmt.Sprintf("%s… (%d bytes)", text[:brief], len(text))
	}
	return text
}

// showTimer describes a timer of an operator for people.
func showTimer(what string, key any, t int64) string {
	return fmt.Sprintf("%s of key %q at %d", what, show(key), t)
}

// timerName identifies a timer, also where the texts of keys are equal or contain pointers.
func timerName[K any](what string, keys serde.Serde[K], key *K, t int64) string {
	return fmt.Sprintf("%s %x %d", what, encoded(keys, key), t)
}

// decode is Decode for an item that is to be described. The serde may have panicked at the item
// before, so decode recovers.
func decode[T any](sd serde.Serde[T], data []byte, v *T) (n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return sd.Decode(data, v)
}

// encoded returns an item, which is to be described, in its serde, or nil if the serde panics.
func encoded[T any](sd serde.Serde[T], v *T) (data []byte) {
	defer func() {
		if recover() != nil {
			data = nil
		}
	}()
	return sd.Append(nil, v)
}
