//go:build !nokeyed

package chain

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/watermark/chooser"
)

// Builds returns why the program cannot build operators whose keys have clocks; nil: it can.
func Builds() error { return nil }

// Measuring returns what builds, into a chain, what measures how far the items of an input are out of order, before it passes
// them on: where they come to their stage, so that those are measured too that a filter drops before the first clock. It is nil
// unless the grain is chosen. hasher returns a hash of keys for a chain.
func Measuring[K comparable, T any](g exec.Grain, hasher func() func(*K) uint64) func(c *Chain, next Emit[item.KV[K, T]]) Emit[item.KV[K, T]] {
	if g.Kind != exec.GrainAuto {
		return nil
	}
	return func(c *Chain, next Emit[item.KV[K, T]]) Emit[item.KV[K, T]] {
		m, hash := new(chooser.Meter), hasher()
		c.meters = append(c.meters, meter{m, len(c.inputs)})
		return func(b *item.Batch[item.KV[K, T]]) error {
			m.Task(b.Times)
			for i := range b.Items {
				if h := hash(&b.Items[i].Key); chooser.Sampled(h) {
					m.Key(h, b.Times[i])
				}
			}
			return next(b)
		}
	}
}

// meter measures the items of an input.
type meter struct {
	*chooser.Meter
	input int
}

// from tells the meters whose items a section has.
func (c *Chain) from(in *exec.In) {
	for _, m := range c.meters {
		if m.input != in.Input {
			continue
		}
		promise := int64(exec.MinTime)
		if all := c.RT.Promises(in.Input); in.Task < len(all) {
			promise = all[in.Task]
		}
		m.From(in.Task, promise)
	}
}

// turn tells the meters that event time has moved.
func (c *Chain) turn() {
	for _, m := range c.meters {
		m.Turn()
	}
	c.turned = true
}

// Measured implements chooser.Measurer. Late items are not its: the runtime counts those that a commit has.
func (c *Chain) Measured(to *chooser.Measured) {
	*to = chooser.Measured{}
	for _, m := range c.meters {
		m.AddTo(to)
	}
	for _, x := range c.switched {
		to.Keys += x.Clocks()
	}
}
