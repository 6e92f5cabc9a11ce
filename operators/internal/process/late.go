package process

import (
	"slices"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
)

// SendLate returns f for an input for which Call.Late also puts the current item into the stream
// of late items; it returns f itself if the job does not use them.
func SendLate[K comparable, In, Out any](c *Call[K, Out], out *chain.Buffer[item.KV[K, In]], f func(v *In)) func(v *In) {
	if out == nil || f == nil {
		return f
	}
	if !slices.Contains(c.sides, sideBuffer(out)) {
		c.sides = append(c.sides, out)
	}
	var current *In
	send := func() {
		c.onLate = nil // once an item
		if err := out.Add(c.Group, item.KV[K, In]{Key: c.Key, Value: *current}, item.At{Time: c.Time}); err != nil {
			c.Fail(err)
		}
	}
	return func(v *In) {
		current, c.onLate = v, send
		f(v)
		current, c.onLate = nil, nil
	}
}
