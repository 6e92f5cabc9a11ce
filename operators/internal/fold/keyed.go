//go:build !nokeyed

package fold

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/closing"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/internal/timerqueue"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
	"tailrace.dev/tailrace/operators/watermark"
)

// byKey is what Windows do if each key has a clock (package watermark).
//
// A window of a key closes when the first of two has reached its end: the key's own clock, behind the
// item that moves it, or the watermark W, in Advance. For W each key has at most one timer, at the first
// time at which something would be left to do: a window of its panes ends that the key's clock has not
// reached, their lateness ends, or W reaches the key's logged boundary.
//
// State, besides the panes:
//
//   - passed has, for each key whose clock is ahead of W by a boundary at least, the greatest boundary F
//     that the clock has reached. What is due of the key by F has been done. It changes once a window and
//     key, and is deleted when W reaches F.
//   - paths has, if keys have several, what each has reached, for a key of which one is ahead of W. It is
//     deleted when W has reached all.
//   - The cursors say the same of W: up to which (end, key) Advance has closed windows.
//
// Invariant: a window of a key is closed once. Those that end by max(F, cursor) have been.
type byKey[K comparable, A any] struct {
	*Windows[K, A]
	at      panes.Finder
	delay   int64
	still   bool // clocks do not move (exec.Switcher)
	bounds  watermark.Boundaries
	passed  *state.Map[K, int64]
	paths   *byPath[K] // nil: a clock follows its key's items as they come
	cursors *closing.Cursors[K]
	timers  *timerqueue.Queue[K]
	w       int64
	shared  *shared[K]   // nil: each key has a clock of its own; else it has passed and timers, too
	clocks  []int        // by group, the keys that have a timer
	gauge   *exec.Metric // of their number; may be nil
	held    []int32      // scratch of flushKey

	// Of the current Advance: the timer that fires.
	fires bool
	time  int64
	key   K
}

func newByKey[K comparable, A any](w *Windows[K, A], groups int, o Config[A]) *byKey[K, A] {
	x := &byKey[K, A]{
		Windows: w, at: panes.NewFinder(o.Cut), delay: o.Clocks.Delay,
		bounds:  watermark.Boundaries{End: o.Cut.Size, Every: o.Cut.Slide, Lateness: o.Lateness},
		passed:  state.NewMap(o.Name+".passed", groups, w.keys, serde.Int64),
		cursors: closing.NewCursors(o.Name, groups, w.keys),
		timers:  timerqueue.New(groups, w.keys),
		clocks:  make([]int, groups),
		w:       exec.MinTime,
	}
	x.passed.KeepInMemory()
	if o.Clocks.N > 0 {
		x.shared = newShared(o.Name, groups, o.Clocks.N, w.keys)
	}
	if o.Clocks.Paths != nil {
		x.paths = newByPath(o.Name, groups, w.keys, x.bounds, o.Clocks.Paths)
	}
	w.state.UseClocks(x)
	if m, ok := w.rt.(exec.Meters); ok {
		x.gauge = exec.NewMetric(exec.MetricValue{Kind: "gauge", Name: "clocks", Labels: []string{"operator"}, Values: []string{o.Name}})
		m.Meter(x.gauge)
	}
	return x
}

func (x *byKey[K, A]) tables() []exec.StateTable {
	// The clocks are restored before the panes.
	if x.shared != nil {
		return []exec.StateTable{x.cursors.Table(), x.shared.passed, x.state}
	}
	if x.paths != nil {
		return []exec.StateTable{x.cursors.Table(), x.passed, x.paths, x.state}
	}
	return []exec.StateTable{x.cursors.Table(), x.passed, x.state}
}

// judge returns the entry, the clock and the accumulator of an item of the pane found last; had is the entry
// of its key, nil if there is none. The accumulator is nil if the item does not count, and the clock if the
// item cannot move it.
func (x *byKey[K, A]) judge(had *state.PaneEntry[K, A], group int, key *K, t int64) (e *state.PaneEntry[K, A], c *watermark.Clock, acc *A, where panes.Place) {
	now, share := x.w, uint8(0)
	e = had
	switch {
	case x.shared != nil:
		if e != nil {
			share = *x.state.Share(e)
		} else {
			share = x.shared.of(group, key)
		}
		c = &x.shared.clock(group, share).Clock
		now = c.At(now)
	case e != nil:
		c = x.state.Clock(e)
		now = c.At(now)
	}
	where = x.at.Place(now, x.late)
	if where == panes.Late {
		x.rt.Late(1)
		if x.at.Last+x.late <= x.w {
			x.rt.Count("late_by_stream", 1)
		} else {
			x.rt.Count("late_by_key", 1)
		}
		return e, c, nil, where // a clock of its own that the key does not have would not be ahead of W
	}
	if e == nil && (x.shared == nil || where != panes.Gap) {
		e = x.state.AddKey(group, key)
		if x.shared != nil {
			*x.state.Share(e) = share
		} else {
			c = x.state.Clock(e)
		}
	}
	if where == panes.Gap {
		return e, c, nil, where
	}
	p, created := x.state.UpsertPane(e, x.at.Pane)
	if created {
		x.created(e, now)
	}
	x.hold(e, p, x.at.Pane, where, t)
	return e, c, &p.Acc, where
}

// now returns the event time of a key.
func (x *byKey[K, A]) now(e *state.PaneEntry[K, A]) int64 { return x.clock(e).At(x.w) }

// share returns the number of the clock that a key shares, 0 if each key has its own.
func (x *byKey[K, A]) share(e *state.PaneEntry[K, A]) uint8 {
	if x.shared == nil {
		return 0
	}
	return *x.state.Share(e)
}

// created sets the timer that a new pane needs, at a time of its key.
func (x *byKey[K, A]) created(e *state.PaneEntry[K, A], now int64) {
	if x.at.First <= x.w {
		// Windows of this pane that W has closed must not fire for it. A restart would not know:
		// nothing needs to have fired at w. Those that only the key's clock has closed end by F.
		x.cursors.Set(int(e.Group), x.share(e), x.w, nil)
	}
	first := x.at.First
	if first <= now {
		if first = x.win.After(now); first > x.at.Last {
			first = x.at.Last + x.late
		}
	}
	x.arm(e, first)
}

// arm sets the timer of a key, if it has none that is as early.
func (x *byKey[K, A]) arm(e *state.PaneEntry[K, A], t int64) {
	c := x.state.Clock(e)
	if t >= c.Timer {
		return
	}
	if x.shared != nil {
		x.shared.clock(int(e.Group), *x.state.Share(e)).timers.Add(t, 0, e.Key)
	} else {
		if c.Timer == watermark.NoTimer {
			x.clocks[e.Group]++
		}
		x.timers.Add(t, int(e.Group), e.Key)
	}
	c.Timer = t
}

// move moves the clock of an item behind it, and does what is due then.
func (x *byKey[K, A]) move(group int, key *K, e *state.PaneEntry[K, A], c *watermark.Clock, t int64) error {
	if x.still {
		if e != nil {
			x.release(e)
		}
		return nil
	}
	own := c.Own
	if x.paths != nil {
		to, reached := x.paths.move(group, key, t, x.delay, x.w)
		if reached > exec.MinTime {
			x.arm(e, reached)
		}
		if !c.Follow(to) {
			x.release(e)
			return nil
		}
	} else if !c.Move(t, x.delay) {
		return nil
	}
	return x.reached(group, key, e, c, own)
}

// reached does what is due of a clock that has moved from own to Next or behind it.
func (x *byKey[K, A]) reached(group int, key *K, e *state.PaneEntry[K, A], c *watermark.Clock, own int64) error {
	c.Next = x.bounds.After(c.Own)
	own = max(own, x.w)
	reached := x.bounds.Reached(c.Own)
	if x.shared != nil {
		if reached > own {
			share := x.shared.of(group, key)
			return x.moved(group, share, own, reached)
		}
		return nil
	}
	if reached > own {
		if err := x.flushKey(e, own); err != nil {
			return err
		}
		for end := x.due(e, own); end <= c.Own; end = x.due(e, end) {
			if _, err := x.close(e, end); err != nil {
				return err
			}
		}
		v, _ := x.passed.Upsert(group, &e.Key)
		*v = reached
		x.arm(e, reached)
	}
	x.release(e)
	return nil
}

// due returns the first time > t at which a window of a key's panes closes or its lateness ends;
// watermark.NoTimer if there is none.
func (x *byKey[K, A]) due(e *state.PaneEntry[K, A], t int64) int64 {
	first := watermark.NoTimer
	for i := range e.V.All() {
		p := &e.V.All()[i]
		if p.Dead {
			continue
		}
		if end := x.win.First(p.End()); t < end {
			first = min(first, end)
			continue
		}
		last := x.win.Last(p.End())
		if t < last {
			first = min(first, x.win.After(t))
		}
		if t < last+x.late {
			first = min(first, last+x.late)
		}
	}
	return first
}

// close closes the window of a key that ends at end, if one does, and drops the panes that no window
// needs any more. did: there was something to do.
func (x *byKey[K, A]) close(e *state.PaneEntry[K, A], end int64) (did bool, err error) {
	win := &x.win
	if win.After(end-1) == end {
		acc, some, _ := x.combine(e, end)
		if did = some; some && !x.eager {
			if err := x.emit(int(e.Group), &e.Key, end, acc, end-1); err != nil {
				return true, err
			}
		}
	}
	return x.drop(e, end) || did, nil
}

// drop drops the panes of a key whose last window and its lateness end by t.
func (x *byKey[K, A]) drop(e *state.PaneEntry[K, A], t int64) bool {
	last := x.win.After(t-x.late) - x.win.Slide // of the windows that end by then
	return x.dropPanes(e, exec.MinTime, last-x.win.Size+x.win.Slide)
}

// release lets an entry go that has no timer.
func (x *byKey[K, A]) release(e *state.PaneEntry[K, A]) {
	if x.state.Clock(e).Timer == watermark.NoTimer {
		x.state.Forget(e)
	}
}

// flushKey emits the windows of a key that have changed, at an event time of the key, before its clock
// reaches a boundary: behind that some of them do not change any more.
func (x *byKey[K, A]) flushKey(e *state.PaneEntry[K, A], now int64) error {
	if len(x.Windows.held) == 0 {
		return nil
	}
	x.held = x.held[:0]
	for i := range e.V.All() {
		if at := e.V.All()[i].Held; at > 0 {
			x.held = append(x.held, at)
		}
	}
	if len(x.held) == 0 {
		return nil
	}
	slices.Sort(x.held) // a restored table has the panes in another order
	done := map[changed[K, A]]bool{}
	for _, at := range x.held {
		h := &x.Windows.held[at-1]
		if err := x.emitHeld(h, now, done); err != nil {
			return err
		}
		*h = heldPane[K, A]{}
	}
	return nil
}

// report sets the metric.
func (x *byKey[K, A]) report() {
	if x.gauge != nil {
		x.gauge.Set(float64(x.ahead()))
	}
}

// ahead returns how many clocks there are.
func (x *byKey[K, A]) ahead() (sum int) {
	if x.shared != nil {
		return x.shared.ahead(x.w)
	}
	for _, n := range x.clocks {
		sum += n
	}
	return sum
}

// advance fires the timers that are due by w.
func (x *byKey[K, A]) advance(w int64, m *exec.Meter) (done bool, err error) {
	x.fires = false
	if x.shared != nil {
		return x.advanceShared(w, m)
	}
	for {
		t, ok := x.timers.Peek()
		if !ok || t > w {
			x.w = max(x.w, w)
			return true, nil
		}
		t, group, key, ok := x.timers.Pop(w)
		if !ok {
			continue // those that were due have moved to another task
		}
		x.key = key
		e := x.state.Key(group, &x.key)
		if e == nil || x.state.Clock(e).Timer != t {
			continue // the key has an earlier timer, or had
		}
		did, err := x.visit(group, e, t, m)
		if err != nil {
			return false, err
		}
		m.Unit(did)
		if (did || m.Avoided) && m.Over() { // a call that stops early has done a unit at least
			return false, nil
		}
	}
}

// visit does what is due of a key when W reaches t, and sets its next timer. did is a function of the
// key's state: a restored task, which may have other timers for which nothing is due, counts the same
// units.
func (x *byKey[K, A]) visit(group int, e *state.PaneEntry[K, A], t int64, m *exec.Meter) (did bool, err error) {
	c := x.state.Clock(e)
	f := int64(exec.MinTime)
	if c.Own > exec.MinTime {
		f = x.bounds.Reached(c.Own)
	}
	switch {
	case t == f:
		if x.passed.Get(group, &e.Key) != nil {
			x.passed.Delete(group, &e.Key)
			x.cursors.Set(group, 0, t, &e.Key)
			did = true
		}
	case t > f && x.due(e, t-1) == t:
		if x.win.After(t-1) == t {
			x.fires, x.time = true, t
			if m.Avoids(x) {
				did = x.drop(e, t)
			} else if did, err = x.close(e, t); err != nil {
				return did, err
			}
			x.cursors.Set(group, 0, t, &e.Key)
		} else {
			did = x.drop(e, t)
		}
	}
	c.Timer = x.due(e, max(t, f))
	if f > t {
		c.Timer = min(c.Timer, f)
	}
	if x.paths != nil {
		reached, gone := x.paths.drop(group, &e.Key, t)
		did = did || gone
		if reached > t {
			c.Timer = min(c.Timer, reached)
		}
	}
	if c.Timer == watermark.NoTimer {
		x.clocks[group]--
		x.state.Forget(e)
		return did, nil
	}
	x.timers.Add(c.Timer, group, e.Key)
	return did, nil
}

// RestoreClocks implements state.Clocked.
func (x *byKey[K, A]) RestoreClocks(group int, along bool) {
	if x.shared != nil {
		x.restoreShared(group)
		return
	}
	if along {
		return
	}
	x.passed.Range(group, func(key *K, f *int64) bool {
		e := x.state.Key(group, key)
		if e == nil {
			e = x.state.AddKey(group, key)
		}
		c := x.state.Clock(e)
		c.Own, c.Next = *f, x.bounds.After(*f)
		return true
	})
	if x.paths != nil {
		x.paths.Range(group, func(key *K, _ *watermark.Paths) bool {
			if x.state.Key(group, key) == nil {
				x.state.AddKey(group, key)
			}
			return true
		})
	}
}

// Restored implements state.Clocked.
func (x *byKey[K, A]) Restored(e *state.PaneEntry[K, A]) {
	group, f := int(e.Group), int64(exec.MinTime)
	if x.shared != nil {
		share := x.shared.of(group, &e.Key)
		*x.state.Share(e) = share
		fired := max(x.shared.clock(group, share).passed, x.cursors.Fired(group, share, &e.Key))
		x.arm(e, x.due(e, fired))
		x.release(e)
		return
	}
	if p := x.passed.Get(group, &e.Key); p != nil {
		f = *p
	}
	fired := max(f, x.cursors.Fired(group, 0, &e.Key))
	x.arm(e, x.due(e, fired))
	if f > exec.MinTime {
		x.arm(e, f)
	}
	if x.paths != nil {
		if reached := x.paths.reached(group, &e.Key); reached > exec.MinTime {
			x.arm(e, reached)
		}
	}
	x.release(e)
}

// Dropped implements state.Clocked.
func (x *byKey[K, A]) Dropped(group int) {
	x.timers.DropGroup(group)
	x.clocks[group] = 0
	if x.shared != nil {
		x.shared.groups[group] = nil
	}
}

// Timer implements exec.Timed.
func (x *byKey[K, A]) Timer() (text, name string) {
	if !x.fires {
		return "", ""
	}
	return chain.ShowTimer(fmt.Sprintf("window %q, its end", x.name), x.key, x.time), chain.TimerName(x.name, x.keys, &x.key, x.time)
}

// receiveByKey returns what passes items to the windows: at returns the time by which an item is found in a
// pane, nil: its time, and add adds it to the pane's accumulator.
func receiveByKey[K comparable, V, A any](x *byKey[K, A], at func(v *V) int64, add func(acc *A, v *V, t int64), take take[K, V], lates *chain.Buffer[item.KV[K, V]]) chain.Emit[item.KV[K, V]] {
	plain := take == nil && x.shared == nil && x.paths == nil && !x.eager
	return func(b *item.Batch[item.KV[K, V]]) error {
		clocks := x.state.GroupClocks(b.Group)
		for i := range b.Items {
			kv, t := &b.Items[i], b.Times[i]
			if at == nil {
				x.at.Find(t)
			} else {
				x.at.Find(at(&kv.Value))
			}
			had := x.state.Key(b.Group, &kv.Key)
			if plain && had != nil {
				// Nearly all items are of a pane that has changed since the last commit, and of no window that has
				// closed. This is judge and move for them, without the calls.
				c := state.ClockIn(clocks, had)
				if c == nil {
					c = x.state.Clock(had)
				}
				if p := had.V.Changed(x.at.Pane); p != nil && x.at.First > c.At(x.w) && x.at.Last >= x.at.Pane {
					add(&p.Acc, &kv.Value, t)
					if own := c.Own; !x.still && c.Move(t, x.delay) {
						if err := x.reached(b.Group, &kv.Key, had, c, own); err != nil {
							return err
						}
					}
					continue
				}
			}
			e, c, acc, where := x.judge(had, b.Group, &kv.Key, t)
			if acc == nil {
				if err := sendLateItem(lates, where, b, i); err != nil {
					return err
				}
			} else {
				v := &kv.Value
				if take != nil {
					var err error
					if v, err = take(b.Group, &kv.Key, v, t); err != nil {
						return err
					}
				}
				add(acc, v, t)
				if where == panes.Reopen && x.each {
					if err := x.Flush(); err != nil {
						return err
					}
				}
			}
			if c != nil {
				if err := x.move(b.Group, &kv.Key, e, c, t); err != nil {
					return err
				}
			}
		}
		if err := x.relieve(); err != nil {
			return err
		}
		return x.out.Flush()
	}
}
