//go:build !nokeyed

package fold

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
	"tailrace.dev/tailrace/operators/watermark"
)

// byPath is the table of the paths of keys (watermark.Paths) of windows. It has a key while one of its paths
// has reached a boundary that W has not reached. In memory are the times themselves, and in the change log
// the boundaries, so that it grows by an entry for each boundary that a path reaches. Of a path that has
// reached no boundary ahead of W, the boundary of its promise says as much.
type byPath[K comparable] struct {
	*state.Map[K, watermark.Paths]
	in     *chain.Paths
	bounds watermark.Boundaries
	// from and to are the boundaries around the newest time that was looked up: most times are between
	// those, too.
	from, to int64
}

func newByPath[K comparable](name string, groups int, keys serde.Serde[K], bounds watermark.Boundaries, in *chain.Paths) *byPath[K] {
	x := &byPath[K]{in: in, bounds: bounds, from: exec.MaxTime}
	x.Map = state.NewMap(name+".paths", groups, keys, serde.New("paths by boundary",
		func(dst []byte, p *watermark.Paths) []byte { return process.AppendPaths(dst, p, x.boundary) },
		process.ReadPaths))
	x.KeepInMemory()
	return x
}

// boundary returns the greatest boundary ≤ t, MinTime for MinTime.
func (x *byPath[K]) boundary(t int64) int64 {
	if t == exec.MinTime {
		return t
	}
	if t < x.from || t >= x.to {
		x.from, x.to = x.bounds.Reached(t), x.bounds.After(t)
	}
	return x.from
}

// move moves the path of the current item of a key, of time t, and returns the time of the key. reached is
// the boundary ahead of w that the path has reached with this item, MinTime if there is none.
func (x *byPath[K]) move(group int, key *K, t, delay, w int64) (own, reached int64) {
	path := x.in.Current
	p := x.Get(group, key)
	if p == nil {
		if t-delay > t || x.boundary(t-delay) <= w {
			none := watermark.NewPaths()
			return none.Move(path, t, delay, x.in.Promised[:]), exec.MinTime
		}
		p, _ = x.Upsert(group, key)
		*p = watermark.NewPaths()
	}
	was := x.boundary(p[path])
	own = p.Move(path, t, delay, x.in.Promised[:])
	if now := x.boundary(p[path]); now > was {
		x.Upsert(group, key) // to log it
		if now > w {
			reached = now
			return own, reached
		}
	}
	return own, exec.MinTime
}

// reached returns the greatest boundary that a path of a key has reached.
func (x *byPath[K]) reached(group int, key *K) int64 {
	if p := x.Get(group, key); p != nil {
		return x.boundary(p.Greatest())
	}
	return exec.MinTime
}

// drop deletes the paths of a key if w has reached all, and returns what they have reached.
func (x *byPath[K]) drop(group int, key *K, w int64) (reached int64, did bool) {
	reached = x.reached(group, key)
	if reached == exec.MinTime || reached > w {
		return reached, false
	}
	x.Delete(group, key)
	return exec.MinTime, true
}
