package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// AggregateWindows folds the items of each key and window. A window without
// items gives no result. Results keep the key; their time is the window's end
// − 1 (or, for one emitted later, the watermark).
//
// With Final, a result comes when the watermark reaches the window's end, and
// again after late items within the Lateness. With Eager it comes once a commit
// when it has changed, at the time of the newest item, and not again at the end.
// A later result of a window replaces those before it: WindowUpdates marks them so.
// An item all of whose windows are closed is late: counted and dropped, or in the stream
// that Late returns.
func AggregateWindows[K comparable, T, A any](in KeyedStream[K, T], win Windows, agg Aggregator[T, A], opts ...WindowOption) KeyedStream[K, Windowed[A]] {
	j := in.n.job
	what := fmt.Sprintf("%v windows of %q", win, in.n.stage.find().name)
	agg.check(j, what, win.cut.Pane != win.cut.Size)
	if agg.Keeps && in.vals == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
	return windowStage(in.n, in.keys, in.vals, win, agg, what, opts, func(c *chain, w *windowOp[K, A], lates *buffer[KV[K, T]]) emit[KV[K, T]] {
		clone := cloner(agg.Keeps, in.vals)
		return func(b *Batch[KV[K, T]]) error {
			for i := range b.Items {
				kv, t := &b.Items[i], b.Times[i]
				pane, where := w.clock.Locate(t)
				s := w.pane(b.Group, &kv.Key, pane, where, t)
				if s == nil {
					if err := sendLateItem(lates, where, b, i); err != nil {
						return err
					}
					continue
				}
				v := &kv.Value
				if clone != nil {
					var err error
					if v, err = clone(v); err != nil {
						return err
					}
				}
				agg.Add(s, v, t)
			}
			return w.relieve()
		}
	})
}

// sendLateItem puts the i-th item of a batch into the stream of late items, if it is late and the
// job uses that stream.
func sendLateItem[T any](lates *buffer[T], where state.Place, b *Batch[T], i int) error {
	if lates == nil || where != state.Late {
		return nil
	}
	return lates.add(b.Group, b.Items[i], b.Times[i])
}

// CountWindows counts the items of each key and window.
func CountWindows[K comparable, T any](in KeyedStream[K, T], win Windows, opts ...WindowOption) KeyedStream[K, Windowed[int64]] {
	return AggregateWindows(in, win, Counting[T](), opts...)
}

// windowStage builds the operator that keeps panes; what is in between (items
// or partial results) is receive's matter.
func windowStage[K comparable, I, T, A any](in *node[KV[K, I]], keys serde.Serde[K], vals serde.Serde[I], win Windows, agg Aggregator[T, A], what string, opts []WindowOption,
	receive func(c *chain, w *windowOp[K, A], lates *buffer[KV[K, I]]) emit[KV[K, I]],
) KeyedStream[K, Windowed[A]] {
	j := in.job
	win.check(j, what)
	o := windowed(j, what, opts)
	var sd serde.Serde[Windowed[A]]
	if agg.Acc != nil {
		sd = WindowedSerde(agg.Acc)
	}
	out := newNode[KV[K, Windowed[A]]](j, in.stage, nil)
	out.op, out.varies = j.identify(in.stage, "window", ""), in.varies
	out.op.results = &windowResults{lateness: o.lateness, once: o.emission == Final && o.lateness == 0}
	if o.emission == Eager {
		out.varies = what + " are Eager"
	}
	lates := addLate(out, in, keys, vals)
	in.subs = append(in.subs, func(c *chain) emit[KV[K, I]] {
		name := out.op.name
		w := &windowOp[K, A]{
			rt: c.rt, name: name, keys: keys, o: o, merge: agg.Merge,
			clock: state.NewPaneClock(name, c.rt.Groups(), win.cut, o.lateness, keys),
			out:   newBuffer(c, out.emitter(c)),
		}
		w.clock.Fire, w.clock.Drop, w.clock.Timed = w.fire, w.drop, w
		w.state = state.NewPaneTable(name, c.rt.Groups(), keys, agg.Acc, w.clock, win.String())
		c.add(out.id, w)
		buf := lateBuffer(c, lates)
		next := receive(c, w, buf)
		if buf == nil {
			return next
		}
		return func(b *Batch[KV[K, I]]) error {
			if err := next(b); err != nil {
				return err
			}
			return buf.flush()
		}
	})
	return keyed(out, keys, sd)
}

// windowOp keeps an accumulator a key and pane and combines them when a window
// closes.
type windowOp[K comparable, A any] struct {
	rt    Runtime
	name  string
	keys  serde.Serde[K]
	o     windowOptions
	merge func(acc, other *A)
	clock *state.PaneClock[K]
	state *state.PaneTable[K, A]
	out   *buffer[KV[K, Windowed[A]]]
	// held has the panes whose windows are to be emitted at the next commit, in
	// the order of their first change.
	held    []heldPane[K, A]
	scratch A
}

// heldPane is a pane that has changed; its entry stays until the commit.
type heldPane[K comparable, A any] struct {
	e    *state.PaneEntry[K, A]
	pane int64
	time int64 // of the newest item since it was emitted last
}

func (w *windowOp[K, A]) tables() []exec.StateTable {
	// The cursors are restored before the panes, which read them.
	return []exec.StateTable{w.clock.Cursors(), w.state}
}

// pane returns the accumulator that an item of this key and pane counts in, or
// nil if it does not count.
func (w *windowOp[K, A]) pane(group int, key *K, pane int64, where state.Place, t int64) *A {
	switch where {
	case state.Late:
		w.rt.Late(1)
		return nil
	case state.Gap:
		return nil
	}
	e, p, created := w.state.Upsert(group, key, pane)
	if created {
		w.clock.Created(group, e.Key)
	}
	if w.o.emission == Eager || where == state.Reopen {
		if p.Held == 0 {
			w.held = append(w.held, heldPane[K, A]{e, pane, t})
			p.Held = int32(len(w.held))
		} else {
			h := &w.held[p.Held-1]
			h.time = max(h.time, t)
		}
	}
	return &p.Acc
}

// combine folds the panes of the window that ends at end into the scratch
// accumulator. some: there was a pane; more: one that the next window has too.
func (w *windowOp[K, A]) combine(e *state.PaneEntry[K, A], end int64) (acc *A, some, more bool) {
	if e == nil {
		return nil, false, false
	}
	win := &w.clock.Windows
	if win.Pane == win.Size {
		if p := e.V.At(end); p != nil && !p.Dead {
			return &p.Acc, true, false
		}
		return nil, false, false
	}
	var zero A
	w.scratch = zero
	// In the order of time: merging need not commute.
	for at := end - win.Size + win.Pane; at <= end; at += win.Pane {
		if p := e.V.At(at); p != nil && !p.Dead {
			w.merge(&w.scratch, &p.Acc)
			some = true
			more = more || at > end-win.Size+win.Slide
		}
	}
	return &w.scratch, some, more
}

func (w *windowOp[K, A]) fire(group int, key *K, end int64) (some, more bool, err error) {
	acc, some, more := w.combine(w.state.Find(group, key, end-w.clock.Windows.Size, end), end)
	if !some || w.o.emission == Eager {
		return some, more, nil
	}
	return some, more, w.emit(group, key, end, acc, end-1)
}

func (w *windowOp[K, A]) emit(group int, key *K, end int64, acc *A, t int64) error {
	r := Windowed[A]{Start: end - w.clock.Windows.Size, End: end, Value: *acc}
	return w.out.add(group, KV[K, Windowed[A]]{*key, r}, max(t, w.clock.Watermark()))
}

func (w *windowOp[K, A]) drop(group int, key *K, from, to int64) bool {
	e := w.state.Find(group, key, from, to)
	return e != nil && w.state.DropPanes(e, from, to)
}

// relieve emits what is held if it is too much.
func (w *windowOp[K, A]) relieve() error {
	if len(w.held) >= maxHeld {
		return w.flush()
	}
	return nil
}

// flush emits the windows that have changed: with Eager all of a changed pane,
// else those that had fired before.
func (w *windowOp[K, A]) flush() error {
	if len(w.held) == 0 {
		return nil
	}
	win := &w.clock.Windows
	type window struct {
		e   *state.PaneEntry[K, A]
		end int64
	}
	var done map[window]bool // panes of one key share windows
	if win.Size != win.Pane && len(w.held) > 1 {
		done = make(map[window]bool, len(w.held))
	}
	for i := range w.held {
		h := &w.held[i]
		if p := h.e.V.At(h.pane); p != nil {
			p.Held = 0
		}
		first, last := win.First(h.pane), win.Last(h.pane)
		w.state.BringIn(h.e, first-win.Size, last)
		for end := first; end <= last; end += win.Slide {
			fired := end <= w.clock.Watermark()
			if fired && end+w.o.lateness <= w.clock.Watermark() || !fired && w.o.emission != Eager {
				continue
			}
			if done != nil {
				if done[window{h.e, end}] {
					continue
				}
				done[window{h.e, end}] = true
			}
			acc, some, _ := w.combine(h.e, end)
			if !some {
				continue
			}
			t := end - 1
			if w.o.emission == Eager {
				t = h.time
			}
			if err := w.emit(int(h.e.Group), &h.e.Key, end, acc, t); err != nil {
				return err
			}
		}
	}
	clear(w.held)
	w.held = w.held[:0]
	return w.out.flush()
}

func (w *windowOp[K, A]) Timer() (text, name string) {
	key, end, ok := w.clock.Closed()
	if !ok {
		return "", ""
	}
	return showTimer(fmt.Sprintf("window %q, its end", w.name), *key, end), timerName(w.name, w.keys, key, end)
}

func (w *windowOp[K, A]) stand(t int64) { w.clock.Stand(t) }

func (w *windowOp[K, A]) advance(t int64, m *exec.Meter) (bool, error) {
	if err := w.flush(); err != nil {
		return false, err
	}
	done, err := w.clock.Advance(t, m)
	if err != nil {
		return false, err
	}
	return done, w.out.flush()
}
