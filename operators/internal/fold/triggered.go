package fold

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// triggered is an open window of a key: n items have come since its last result, and time is
// that of the newest.
type triggered[A any] struct {
	n, time int64
	acc     A
}

func triggeredSerde[A any](acc serde.Serde[A]) serde.Serde[triggered[A]] {
	return serde.New("triggered "+serde.NameOf(acc),
		func(dst []byte, v *triggered[A]) []byte {
			return acc.Append(serde.AppendInt64(serde.AppendInt64(dst, v.n), v.time), &v.acc)
		},
		func(r *serde.Reader, v *triggered[A]) {
			v.n, v.time = r.Int64(), r.Int64()
			serde.Take(r, acc, &v.acc)
		})
}

// Triggered has the open windows of the current key, by their ends.
type Triggered[K comparable, T, A any] struct {
	Cut    panes.Aligned
	Global bool // the window of all times
	// Count, Event and Wall say when a result is emitted early: at so many items, or after a time in
	// ms; one of them is set.
	Count, Event, Wall int64
	Parts              bool // a result has only the items since the one before
	Add                func(acc *A, v *T, time int64)
	Clone              func(*T) (*T, error)
	Plain              bool // accumulators hold no memory

	c    *process.Call[K, item.Windowed[A]]
	open *process.Map[K, item.Windowed[A], int64, triggered[A]]
}

// Start makes the state; acc may be nil while the plan is made.
func (x *Triggered[K, T, A]) Start(c *process.Call[K, item.Windowed[A]], acc serde.Serde[A]) {
	var sd serde.Serde[triggered[A]]
	if acc != nil {
		sd = triggeredSerde(acc)
	}
	x.c, x.open = c, process.NewMap(c, "windows", serde.Int64, sd, 0)
}

// Item adds an item to its windows.
func (x *Triggered[K, T, A]) Item(v *T) {
	c := x.c
	first, last := x.windows(c.Time)
	if last < first {
		return // a gap
	}
	if last <= c.W {
		c.Late()
		return
	}
	for end := first; ; end += x.Cut.Slide {
		if end > c.W {
			own := v
			if x.Clone != nil { // one a window
				var err error
				if own, err = x.Clone(v); err != nil {
					c.Fail(err)
					return
				}
			}
			s := x.window(end)
			x.Add(&s.acc, own, c.Time)
			x.added(s, end)
		}
		if end == last {
			return
		}
	}
}

// windows returns the ends of the first and the last window that hold a time.
func (x *Triggered[K, T, A]) windows(t int64) (first, last int64) {
	if x.Global {
		return exec.MaxTime, exec.MaxTime
	}
	pane := x.Cut.PaneOf(t)
	if last = x.Cut.Last(pane); last < pane {
		return 0, -1
	}
	return x.Cut.First(pane), last
}

// window returns the open window that ends at end.
func (x *Triggered[K, T, A]) window(end int64) *triggered[A] {
	if s := x.open.Update(end); s != nil {
		return s
	}
	s := x.open.Upsert(end)
	s.time = exec.MinTime
	x.c.SetEventTimer(end)
	return s
}

// added is called when the current item was added to a window.
func (x *Triggered[K, T, A]) added(s *triggered[A], end int64) {
	c := x.c
	s.n, s.time = s.n+1, max(s.time, c.Time)
	switch {
	case s.n == x.Count:
		x.early(s, end, s.time)
	case s.n > 1:
	case x.Event > 0:
		if at := (panes.Aligned{Pane: x.Event}).PaneOf(c.Time); at < end {
			c.SetEventTimer(at)
		}
	case x.Wall > 0:
		c.SetWallTimer(c.RT.Now() + x.Wall)
	}
}

// early emits the result of a window that is still open.
func (x *Triggered[K, T, A]) early(s *triggered[A], end, t int64) {
	x.emit(s, end, t)
	if s.n = 0; x.Parts {
		var zero A
		s.acc = zero
	}
}

func (x *Triggered[K, T, A]) emit(s *triggered[A], end, t int64) {
	c, start := x.c, exec.MinTime
	if !x.Global {
		start = end - x.Cut.Size
	}
	if c.Failed != nil {
		return
	}
	// Not before the watermark; in order, the current time may be a moment later.
	if c.Failed = c.Out.Add(c.Group, item.KV[K, item.Windowed[A]]{Key: c.Key, Value: item.Windowed[A]{Start: start, End: end, Value: s.acc}}, item.At{Time: max(t, c.W)}); c.Failed == nil && !x.Plain {
		c.Failed = c.Out.Flush() // before the accumulator is changed in place
	}
}

// OnEvent emits the windows that end at t, and those whose trigger is due.
func (x *Triggered[K, T, A]) OnEvent(t int64) {
	for _, end := range x.open.Keys() {
		switch s := x.open.Get(end); {
		case end <= t:
			if s.n > 0 || !x.Parts {
				x.emit(s, end, end-1)
			}
			x.open.Delete(end)
		case x.Event > 0 && t%x.Event == 0 && s.n > 0:
			x.early(x.open.Update(end), end, t-1)
		}
	}
}

// OnWall emits the windows that have items without a result.
func (x *Triggered[K, T, A]) OnWall(int64) {
	for _, end := range x.open.Keys() {
		if s := x.open.Get(end); s.n > 0 {
			x.early(x.open.Update(end), end, s.time)
		}
	}
}
