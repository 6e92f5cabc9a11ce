package fold

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Windows keeps an accumulator a key and pane and combines them when a window
// closes.
type Windows[K comparable, A any] struct {
	rt    exec.Runtime
	name  string
	keys  serde.Serde[K]
	eager bool
	late  int64 // the lateness
	each  bool  // EachLate
	merge func(acc, other *A)
	clock *state.PaneClock[K]
	state *state.PaneTable[K, A]
	out   *chain.Buffer[item.KV[K, item.Windowed[A]]]
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

// Config is what windows do: their name and bounds, when they emit, and how accumulators are merged
// and encoded.
type Config[A any] struct {
	Name, Text string
	Cut        panes.Aligned
	Eager      bool
	Lateness   int64
	EachLate   bool
	Acc        serde.Serde[A]
	Merge      func(acc, other *A)
}

// NewWindows adds the operator of windows, whose results go to next.
func NewWindows[K comparable, A any](c *chain.Chain, id int, keys serde.Serde[K], o Config[A], next chain.Emit[item.KV[K, item.Windowed[A]]]) *Windows[K, A] {
	w := &Windows[K, A]{rt: c.RT, name: o.Name, keys: keys, eager: o.Eager, late: o.Lateness, each: o.EachLate, merge: o.Merge, out: chain.NewBuffer(c, next)}
	w.clock = state.NewPaneClock(o.Name, c.RT.Groups(), o.Cut, o.Lateness, keys, w)
	w.state = state.NewPaneTable(o.Name, c.RT.Groups(), keys, o.Acc, w.clock, o.Text)
	c.Add(id, w)
	return w
}

func (w *Windows[K, A]) Tables() []exec.StateTable {
	// The cursors are restored before the panes, which read them.
	return []exec.StateTable{w.clock.Cursors(), w.state}
}

// pane returns the accumulator that an item of this key and pane counts in, or
// nil if it does not count.
func (w *Windows[K, A]) pane(group int, key *K, pane int64, where state.Place, t int64) *A {
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
	if w.eager || where == state.Reopen {
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
func (w *Windows[K, A]) combine(e *state.PaneEntry[K, A], end int64) (acc *A, some, more bool) {
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

func (w *Windows[K, A]) Fire(group int, key *K, end int64) (some, more bool, err error) {
	acc, some, more := w.combine(w.state.Find(group, key, end-w.clock.Windows.Size, end), end)
	if !some || w.eager {
		return some, more, nil
	}
	return some, more, w.emit(group, key, end, acc, end-1)
}

func (w *Windows[K, A]) emit(group int, key *K, end int64, acc *A, t int64) error {
	r := item.Windowed[A]{Start: end - w.clock.Windows.Size, End: end, Value: *acc}
	return w.out.Add(group, item.KV[K, item.Windowed[A]]{Key: *key, Value: r}, item.At{Time: max(t, w.clock.Watermark())})
}

func (w *Windows[K, A]) Drop(group int, key *K, from, to int64) bool {
	e := w.state.Find(group, key, from, to)
	return e != nil && w.state.DropPanes(e, from, to)
}

// relieve emits what is held if it is too much.
func (w *Windows[K, A]) relieve() error {
	if len(w.held) >= maxHeld {
		return w.Flush()
	}
	return nil
}

// Flush emits the windows that have changed: with Eager all of a changed pane,
// else those that had fired before.
func (w *Windows[K, A]) Flush() error {
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
			if fired && end+w.late <= w.clock.Watermark() || !fired && !w.eager {
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
			if w.eager {
				t = h.time
			}
			if err := w.emit(int(h.e.Group), &h.e.Key, end, acc, t); err != nil {
				return err
			}
		}
	}
	clear(w.held)
	w.held = w.held[:0]
	return w.out.Flush()
}

func (w *Windows[K, A]) Timer() (text, name string) {
	key, end, ok := w.clock.Closed()
	if !ok {
		return "", ""
	}
	return chain.ShowTimer(fmt.Sprintf("window %q, its end", w.name), *key, end), chain.TimerName(w.name, w.keys, key, end)
}

func (w *Windows[K, A]) Stand(t int64) { w.clock.Stand(t) }

func (w *Windows[K, A]) Advance(t int64, m *exec.Meter) (bool, error) {
	if err := w.Flush(); err != nil {
		return false, err
	}
	done, err := w.clock.Advance(t, m)
	if err != nil {
		return false, err
	}
	return done, w.out.Flush()
}

// Items returns what folds items into the windows; lates takes the late ones, and may be nil.
func Items[K comparable, T, A any](w *Windows[K, A], add func(acc *A, v *T, time int64), clone func(*T) (*T, error), lates *chain.Buffer[item.KV[K, T]]) chain.Emit[item.KV[K, T]] {
	return func(b *item.Batch[item.KV[K, T]]) error {
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
			add(s, v, t)
			if where == state.Reopen && w.each {
				if err := w.Flush(); err != nil {
					return err
				}
			}
		}
		return w.relieve()
	}
}

// Partials is Items for partial results.
func Partials[K comparable, A any](w *Windows[K, A], merge func(acc, other *A), clone func(*A) (*A, error), lates *chain.Buffer[item.KV[K, item.Pane[A]]]) chain.Emit[item.KV[K, item.Pane[A]]] {
	return func(b *item.Batch[item.KV[K, item.Pane[A]]]) error {
		for i := range b.Items {
			kv := &b.Items[i]
			pane, where := w.clock.Locate(kv.Value.End - 1)
			acc := w.pane(b.Group, &kv.Key, pane, where, b.Times[i])
			if acc == nil {
				if err := sendLateItem(lates, where, b, i); err != nil {
					return err
				}
				continue
			}
			other := &kv.Value.Acc
			if clone != nil {
				var err error
				if other, err = clone(other); err != nil {
					return err
				}
			}
			merge(acc, other)
			if where == state.Reopen && w.each {
				if err := w.Flush(); err != nil {
					return err
				}
			}
		}
		return w.relieve()
	}
}

// sendLateItem puts the i-th item of a batch into the stream of late items, if it is late and the
// job uses that stream.
func sendLateItem[T any](lates *chain.Buffer[T], where state.Place, b *item.Batch[T], i int) error {
	if lates == nil || where != state.Late {
		return nil
	}
	return lates.Add(b.Group, b.Items[i], b.At(i))
}
