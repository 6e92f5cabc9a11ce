//go:build nokeyed

package fold

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/state"
)

// A program that is built with the tag nokeyed has no clocks of keys: package operators refuses them, so
// that Windows.keyed is nil.

type byKey[K comparable, A any] struct {
	still    bool
	delay, w int64
}

func newByKey[K comparable, A any](*Windows[K, A], int, Config[A]) *byKey[K, A] {
	// A plan with clocks of keys is an error, so that there is no such operator.
	panic("windows by clocks of keys in a program that is built without them")
}

func (x *byKey[K, A]) tables() []exec.StateTable { return nil }

func (x *byKey[K, A]) now(*state.PaneEntry[K, A]) int64 { return x.w }

func (x *byKey[K, A]) ahead() (sum int) { return 0 }

func (x *byKey[K, A]) report() {}

func (x *byKey[K, A]) advance(int64, *exec.Meter) (done bool, err error) { return true, nil }

func (x *byKey[K, A]) Timer() (text, name string) { return "", "" }

func receiveByKey[K comparable, V, A any](*byKey[K, A], func(v *V) int64, func(acc *A, v *V, t int64), take[K, V], *chain.Buffer[item.KV[K, V]]) chain.Emit[item.KV[K, V]] {
	return nil
}
