package watermark

import "tailrace.dev/tailrace/operators/exec"

// Clock is the clock of one key, and what its operator has to know to ask little of it: an item that
// moves it costs two compares. All times are in ms.
type Clock struct {
	// Own is the greatest time − delay of the key's items, MinTime before the first one.
	Own int64
	// Next is the first boundary that Own has not reached; MinTime before the first item.
	Next int64
	// Timer is the time of W at which the operator looks at the key, NoTimer if it does not.
	Timer int64
}

// NoTimer is Clock.Timer if no timer is set.
const NoTimer = exec.MaxTime

// New returns the clock of a key that has had no item.
func New() Clock { return Clock{Own: exec.MinTime, Next: exec.MinTime, Timer: NoTimer} }

// At returns the event time of the key, for a task whose watermark is w.
func (c *Clock) At(w int64) int64 { return max(c.Own, w) }

// Move moves the clock behind an item of time t, and reports whether it has reached Next.
func (c *Clock) Move(t, delay int64) (reached bool) {
	if own := t - delay; own > c.Own && own <= t { // not if it wraps around
		c.Own = own
	}
	return c.Own >= c.Next
}

// Boundaries are the times at which something of a key can be due: the ends of windows, which are
// End + n × Every for all n, and the same Lateness later.
type Boundaries struct{ End, Every, Lateness int64 }

// After returns the first boundary > t.
func (b Boundaries) After(t int64) int64 {
	t = within(t)
	return min(b.end(t)+b.Every, b.end(t-b.Lateness)+b.Every+b.Lateness)
}

// Reached returns the greatest boundary ≤ t.
func (b Boundaries) Reached(t int64) int64 {
	t = within(t)
	return max(b.end(t), b.end(t-b.Lateness)+b.Lateness)
}

// end returns the greatest end of a window ≤ t.
func (b Boundaries) end(t int64) int64 {
	n := (t - b.End) % b.Every
	if n < 0 {
		n += b.Every
	}
	return t - n
}

// within keeps sums of a time and a few windows from overflowing: times are that far from 1970 only by
// mistake.
func within(t int64) int64 {
	const far = 1 << 61
	return min(max(t, -far), far)
}

// Follow is Move for a key whose time is computed from several paths (Paths).
func (c *Clock) Follow(own int64) (reached bool) {
	c.Own = max(c.Own, own)
	return c.Own > exec.MinTime && c.Own >= c.Next
}
