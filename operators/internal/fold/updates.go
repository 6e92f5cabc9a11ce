package fold

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Updates keeps the newest result of each window of the current key, by the window's
// end.
type Updates[K comparable, A any] struct {
	c        *process.Call[K, item.Update[item.Windowed[A]]]
	newest   *process.Map[K, item.Update[item.Windowed[A]], int64, timedResult[A]]
	lateness int64
	vals     serde.Serde[item.Windowed[A]]
	acc      serde.Serde[A] // nil: vals is not a WindowedSerde
}

// timedResult is a result, and the time of the window's newest update.
type timedResult[A any] struct {
	time   int64
	result item.Windowed[A]
}

// NewUpdates returns the updates of windows that have no result behind their end and lateness.
func NewUpdates[K comparable, A any](c *process.Call[K, item.Update[item.Windowed[A]]], vals serde.Serde[item.Windowed[A]], lateness int64) *Updates[K, A] {
	u := &Updates[K, A]{c: c, lateness: lateness, vals: vals, acc: item.ValueSerde(vals)}
	var sd serde.Serde[timedResult[A]]
	if vals != nil {
		sd = serde.New("newest "+serde.NameOf(vals),
			func(dst []byte, v *timedResult[A]) []byte {
				return vals.Append(serde.AppendInt64(dst, v.time), &v.result)
			},
			func(r *serde.Reader, v *timedResult[A]) {
				v.time = r.Int64()
				serde.Take(r, vals, &v.result)
			})
	}
	u.newest = process.NewMap(c, "newest", serde.Int64, sd, 0)
	return u
}

// Result is called with a window's new result.
func (u *Updates[K, A]) Result(v *item.Windowed[A]) {
	c := u.c
	t, kind := max(c.Time, c.Floor), item.Insert
	x := u.newest.Update(v.End)
	switch {
	case x == nil:
		x = u.newest.Upsert(v.End)
		c.SetEventTimer(u.until(v.End))
	case x.result.Start == v.Start:
		t, kind = max(t, x.time), item.UpdateAfter
		c.Emit(item.Update[item.Windowed[A]]{Kind: item.UpdateBefore, Value: x.result}, t)
	}
	x.time = t
	if err := u.keep(&x.result, v); err != nil {
		c.Fail(err)
	}
	c.Emit(item.Update[item.Windowed[A]]{Kind: kind, Value: *v}, t)
}

// keep sets *dst, of the state, to a clone of *v. The memory of what it was stays as it is:
// it may have been emitted.
func (u *Updates[K, A]) keep(dst, v *item.Windowed[A]) error {
	if u.acc == nil {
		return serde.CloneInto(u.vals, dst, v)
	}
	dst.Start, dst.End = v.Start, v.End
	return serde.CloneInto(u.acc, &dst.Value, &v.Value)
}

// Gone is called with the bounds of a session that has others from now on.
func (u *Updates[K, A]) Gone(v *Span) {
	if x := u.newest.Get(v.End); x != nil && x.result.Start == v.Start {
		u.c.Emit(item.Update[item.Windowed[A]]{Kind: item.Delete, Value: x.result}, max(u.c.Time, x.time))
		u.newest.Delete(v.End)
	}
}

// until returns when the last result of a window has come.
func (u *Updates[K, A]) until(end int64) int64 {
	if end > exec.MaxTime-u.lateness {
		return exec.MaxTime
	}
	return end + u.lateness
}

// Expire forgets the window that has its last result at t.
func (u *Updates[K, A]) Expire(t int64) {
	if t < exec.MaxTime {
		u.newest.Delete(t - u.lateness)
		return
	}
	u.newest.Clear()
}
