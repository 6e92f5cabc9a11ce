//go:build nokeyed

package process

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
)

// A program that is built with the tag nokeyed has no clocks of keys: package operators refuses them, so
// that Op.clocks is nil.

// UseClocks is not called.
func (p *Op[K, Out]) UseClocks([]*chain.Paths, int64, int) {
	// A plan with clocks of keys is an error, so that there is no such operator.
	panic("a function with clocks of keys in a program that is built without them")
}

func (p *Op[K, Out]) watch() {}

func keyed[K comparable, In, Out any](*Op[K, Out], int, func(v *In) error) chain.Emit[item.KV[K, In]] {
	return nil
}
