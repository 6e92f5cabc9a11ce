//go:build nokeyed

package chain

import (
	"errors"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
)

// In a program that is built with the tag nokeyed no grain is chosen, so that nothing is measured.

// Builds returns why there are no clocks of keys.
func Builds() error {
	return errors.New("this program is built without clocks of keys (tag nokeyed): use one that is built without that tag, or WatermarkPer(Task, 0)")
}

type meter struct{}

// Measuring returns nil.
func Measuring[K comparable, T any](exec.Grain, func() func(*K) uint64) func(c *Chain, next Emit[item.KV[K, T]]) Emit[item.KV[K, T]] {
	return nil
}

func (c *Chain) from(*exec.In) {}

func (c *Chain) turn() { c.turned = true }
