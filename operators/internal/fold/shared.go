//go:build !nokeyed

package fold

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/timerqueue"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
	"tailrace.dev/tailrace/operators/watermark"
)

// shared has the clocks of windows whose keys share some: n of them in each key group, and a key follows
// the one of its sub-group. An item that moves a clock to a boundary closes the windows of all keys of
// the clock that end by then, in the order of (end, key), before the next item: an item that is late for
// one of them would else be in it.
//
// State: the greatest boundary F that a clock has reached, as for clocks of keys, and a cursor of W for
// each clock. Each key has at most one timer, at the first time at which something is due, in the queue
// of its clock. Invariant: it is greater than the clock's F.
type shared[K comparable] struct {
	n      int
	keys   serde.Serde[K]
	passed *state.Map[uint8, int64]
	groups [][]*sharedClock[K] // by key group and number; nil: none yet
	enc    []byte
}

// sharedClock is a clock that keys share; its Timer is not used.
type sharedClock[K comparable] struct {
	watermark.Clock
	passed int64 // what is logged, MinTime if nothing is
	timers *timerqueue.Queue[K]
}

func newShared[K comparable](name string, groups, n int, keys serde.Serde[K]) *shared[K] {
	x := &shared[K]{
		n: n, keys: keys, groups: make([][]*sharedClock[K], groups),
		passed: state.NewMap(name+".passed", groups, state.Uint8, serde.Int64),
	}
	x.passed.KeepInMemory()
	x.passed.Stays(state.SharesClocks)
	return x
}

// of returns the number of a key's clock.
func (x *shared[K]) of(group int, key *K) uint8 {
	x.enc = x.keys.Append(x.enc[:0], key)
	return uint8(exec.SubGroupOf(exec.HashKey(x.enc), len(x.groups), x.n))
}

// clock returns a clock, which it makes.
func (x *shared[K]) clock(group int, share uint8) *sharedClock[K] {
	if x.groups[group] == nil {
		x.groups[group] = make([]*sharedClock[K], x.n)
	}
	s := x.groups[group][share]
	if s == nil {
		s = &sharedClock[K]{Clock: watermark.New(), passed: exec.MinTime, timers: timerqueue.New(1, x.keys)}
		x.groups[group][share] = s
	}
	return s
}

// ahead returns how many clocks are ahead of w.
func (x *shared[K]) ahead(w int64) (n int) {
	for _, g := range x.groups {
		for _, s := range g {
			if s != nil && s.Own > w {
				n++
			}
		}
	}
	return n
}

// clock returns the clock that a key follows.
func (x *byKey[K, A]) clock(e *state.PaneEntry[K, A]) *watermark.Clock {
	if x.shared != nil {
		return &x.shared.clock(int(e.Group), *x.state.Share(e)).Clock
	}
	return x.state.Clock(e)
}

// moved does what is due when an item has moved a clock from an event time past a boundary.
func (x *byKey[K, A]) moved(group int, share uint8, from, reached int64) error {
	if err := x.flushShare(group, share, from); err != nil {
		return err
	}
	s := x.shared.clock(group, share)
	for {
		t, _, key, ok := s.timers.Pop(reached)
		if !ok {
			break
		}
		x.key = key
		if e := x.state.Key(group, &x.key); e != nil && x.state.Clock(e).Timer == t {
			if _, err := x.close(e, t); err != nil {
				return err
			}
			x.rearm(e, t)
		}
	}
	logged := share
	v, _ := x.shared.passed.Upsert(group, &logged)
	*v, s.passed = reached, reached
	return nil
}

// rearm sets the timer of a key behind the one of time t.
func (x *byKey[K, A]) rearm(e *state.PaneEntry[K, A], t int64) {
	x.state.Clock(e).Timer = watermark.NoTimer
	x.arm(e, x.due(e, t))
	x.release(e)
}

// flushShare is flushKey for the keys of a clock.
func (x *byKey[K, A]) flushShare(group int, share uint8, now int64) error {
	done := map[changed[K, A]]bool{}
	for i := range x.Windows.held {
		h := &x.Windows.held[i]
		if h.e == nil || int(h.e.Group) != group || *x.state.Share(h.e) != share {
			continue
		}
		if err := x.emitHeld(h, now, done); err != nil {
			return err
		}
		*h = heldPane[K, A]{}
	}
	return nil
}

// advanceShared is advance, clock by clock.
func (x *byKey[K, A]) advanceShared(w int64, m *exec.Meter) (done bool, err error) {
	for group, clocks := range x.shared.groups {
		for share, s := range clocks {
			if s == nil {
				continue
			}
			if done, err = x.drain(group, uint8(share), s, w, m); err != nil || !done {
				return false, err
			}
		}
	}
	x.w = max(x.w, w)
	return true, nil
}

// drain fires the timers of a clock that are due by w, and forgets the clock's boundary if w has reached
// it.
func (x *byKey[K, A]) drain(group int, share uint8, s *sharedClock[K], w int64, m *exec.Meter) (done bool, err error) {
	for {
		t, _, key, ok := s.timers.Pop(w)
		if !ok {
			break
		}
		x.key = key
		e := x.state.Key(group, &x.key)
		if e == nil || x.state.Clock(e).Timer != t {
			continue // the key has an earlier timer, or had
		}
		did := false
		x.fires, x.time = x.win.After(t-1) == t, t
		if x.fires && m.Avoids(x) {
			did = x.drop(e, t)
		} else if did, err = x.close(e, t); err != nil {
			return false, err
		}
		x.cursors.Set(group, share, t, &e.Key)
		x.rearm(e, t)
		m.Unit(did)
		if (did || m.Avoided) && m.Over() {
			return false, nil
		}
	}
	if s.passed > exec.MinTime && s.passed <= w {
		logged := share // share would escape, an allocation a call
		x.shared.passed.Delete(group, &logged)
		x.cursors.Set(group, share, s.passed, nil)
		s.passed = exec.MinTime
	}
	return true, nil
}

// restoreShared makes the clocks of a group from what is logged.
func (x *byKey[K, A]) restoreShared(group int) {
	x.shared.groups[group] = nil
	x.shared.passed.Range(group, func(share *uint8, f *int64) bool {
		s := x.shared.clock(group, *share)
		s.Own, s.Next, s.passed = *f, x.bounds.After(*f), *f
		return true
	})
}
