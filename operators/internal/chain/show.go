package chain

import (
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// brief is how much of an item or a key is shown.
const brief = 200

// Show formats an item or a key for people.
func Show(v any) string {
	text := fmt.Sprintf("%+v", v)
	if len(text) > brief {
		return fmt.Sprintf("%s… (%d bytes)", text[:brief], len(text))
	}
	return text
}

// ShowTimer describes a timer of an operator for people.
func ShowTimer(what string, key any, t int64) string {
	return fmt.Sprintf("%s of key %q at %d", what, Show(key), t)
}

// TimerName identifies a timer, also where the texts of keys are equal or contain pointers.
func TimerName[K any](what string, keys serde.Serde[K], key *K, t int64) string {
	return fmt.Sprintf("%s %x %d", what, Encoded(keys, key), t)
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

// Encoded returns an item, which is to be described, in its serde, or nil if the serde panics.
func Encoded[T any](sd serde.Serde[T], v *T) (data []byte) {
	defer func() {
		if recover() != nil {
			data = nil
		}
	}()
	return sd.Append(nil, v)
}
