package operators

import (
	"fmt"
	"time"
)

// StateOption is an option of NewValue, NewMap and NewList.
type StateOption func(*stateOptions)

type stateOptions struct{ ttl int64 }

// TTL makes a value end a time after it was last written, by Put, Update or Upsert. Time is
// event time: that of the current item or timer, or the watermark, if that is later (in a
// timer of the wall clock always the watermark). A function that is called at the time of
// the last write + d, or later, does not find the value. So what it finds follows from the
// items and the order in which they come, and with InOrder from the items and their times.
//
// What has ended leaves the state when the watermark gets there. Of a map each entry has
// its own time. A value of a list ends d after its own time, the one that List.Add was
// called with. d is a positive whole number of milliseconds.
func TTL(d time.Duration) StateOption {
	return func(o *stateOptions) {
		if o.ttl = d.Milliseconds(); d <= 0 || d%time.Millisecond != 0 {
			o.ttl = -1
		}
	}
}

// ttlOf returns the TTL of a state in ms, 0: none.
func ttlOf[K comparable, Out any](c *Context[K, Out], name string, opts []StateOption) int64 {
	var o stateOptions
	for _, f := range opts {
		f(&o)
	}
	if o.ttl < 0 {
		c.chain.Fail(fmt.Errorf("%q, state %q: its TTL is not a positive whole number of milliseconds", c.call.Name, name))
	}
	return max(o.ttl, 0)
}
