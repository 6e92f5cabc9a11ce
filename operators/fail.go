package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// Fail gives up the item, or the timer, for which a function of the job is being called, and does
// not return. The job's --on-error decides what happens: the task fails, the item is skipped, or it
// goes to the dead letters, with err. What the item had changed or emitted by then is undone.
//
// Any function of a job may call it, from the goroutine that the function is called in.
func Fail(err error) { exec.Abort(err) }

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
