package fold

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/closing"
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
	win   panes.Aligned
	clock *closing.Clock[K] // nil: keys have clocks
	keyed *byKey[K, A]      // nil: they do not
	state *state.PaneTable[K, A]
	out   *chain.Buffer[item.KV[K, item.Windowed[A]]]
	// held has the panes whose windows are to be emitted at the next commit, in
	// the order of their first change.
	held    []heldPane[K, A]
	scratch A
	kept    keeper[K, A]     // nil: items are not kept
	applied item.Windowed[A] // scratch of kept
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
	Clocks     *Clocks // of keys; nil: windows close with the stream's watermark
	Acc        serde.Serde[A]
	Merge      func(acc, other *A)
}

// Clocks says that each key of an operator has a clock, delay ms behind the key's newest item; or, if N
// is not 0, that the keys of a key group share N clocks.
//
// Paths, if not nil, are those by which the items of a key come: its clock is computed from the times of
// all (watermark.Paths).
type Clocks struct {
	Delay int64
	N     int
	Paths *chain.Paths
}

// NewWindows adds the operator of windows, whose results go to next.
func NewWindows[K comparable, A any](c *chain.Chain, id int, keys serde.Serde[K], o Config[A], next chain.Emit[item.KV[K, item.Windowed[A]]]) *Windows[K, A] {
	w := &Windows[K, A]{rt: c.RT, name: o.Name, keys: keys, eager: o.Eager, late: o.Lateness, each: o.EachLate, win: o.Cut, merge: o.Merge, out: chain.NewBuffer(c, next)}
	if o.Clocks == nil {
		w.clock = closing.NewClock(o.Name, c.RT.Groups(), o.Cut, o.Lateness, keys, w)
		w.state = state.NewPaneTable(o.Name, c.RT.Groups(), keys, o.Acc, w.clock, o.Text)
	} else {
		w.state = state.NewPaneTable[K, A](o.Name, c.RT.Groups(), keys, o.Acc, nil, o.Text)
		w.keyed = newByKey(w, c.RT.Groups(), o)
	}
	c.Add(id, w)
	return w
}

// Switch implements chain.Switched.
func (w *Windows[K, A]) Switch(moves bool, delay int64) {
	if w.keyed != nil {
		w.keyed.still, w.keyed.delay = !moves, delay
	}
}

// Clocks implements chain.Switched.
func (w *Windows[K, A]) Clocks() int {
	if w.keyed == nil {
		return 0
	}
	return w.keyed.ahead()
}

func (w *Windows[K, A]) Tables() []exec.StateTable {
	var all []exec.StateTable
	if w.keyed != nil {
		all = w.keyed.tables()
	} else {
		// The cursors are restored before the panes, which read them.
		all = []exec.StateTable{w.clock.Cursors(), w.state}
	}
	if w.kept != nil {
		all = append(all, w.kept.table())
	}
	return all
}

// pane returns the accumulator that an item of this key and pane counts in, or
// nil if it does not count.
func (w *Windows[K, A]) pane(group int, key *K, pane int64, where panes.Place, t int64) *A {
	switch where {
	case panes.Late:
		w.rt.Late(1)
		return nil
	case panes.Gap:
		return nil
	}
	e, p, created := w.state.Upsert(group, key, pane)
	if created {
		w.clock.Created(group, e.Key)
	}
	w.hold(e, p, pane, where, t)
	return &p.Acc
}

// hold notes that a pane has changed, if its windows are to be emitted for that.
func (w *Windows[K, A]) hold(e *state.PaneEntry[K, A], p *state.Pane[A], pane int64, where panes.Place, t int64) {
	if !w.eager && where != panes.Reopen {
		return
	}
	if p.Held == 0 {
		w.held = append(w.held, heldPane[K, A]{e, pane, t})
		p.Held = int32(len(w.held))
		return
	}
	h := &w.held[p.Held-1]
	h.time = max(h.time, t)
}

// combine folds the panes of the window that ends at end into the scratch
// accumulator. some: there was a pane; more: one that the next window has too.
func (w *Windows[K, A]) combine(e *state.PaneEntry[K, A], end int64) (acc *A, some, more bool) {
	if e == nil {
		return nil, false, false
	}
	win := &w.win
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
	acc, some, more := w.combine(w.state.Find(group, key, end-w.win.Size, end), end)
	if !some || w.eager {
		return some, more, nil
	}
	return some, more, w.emit(group, key, end, acc, end-1)
}

func (w *Windows[K, A]) emit(group int, key *K, end int64, acc *A, t int64) error {
	r := item.Windowed[A]{Start: end - w.win.Size, End: end, Value: *acc}
	if w.kept != nil {
		w.applied = r
		if err := w.kept.result(group, key, &w.applied); err != nil {
			return err
		}
		r = w.applied
	}
	return w.out.Add(group, item.KV[K, item.Windowed[A]]{Key: *key, Value: r}, item.At{Time: max(t, w.watermark())})
}

// watermark returns the event time that all inputs have reached.
func (w *Windows[K, A]) watermark() int64 {
	if w.keyed != nil {
		return w.keyed.w
	}
	return w.clock.Watermark()
}

// timeOf returns the event time of a key.
func (w *Windows[K, A]) timeOf(e *state.PaneEntry[K, A]) int64 {
	if w.keyed != nil {
		return w.keyed.now(e)
	}
	return w.clock.At(int(e.Group), &e.Key)
}

func (w *Windows[K, A]) Drop(group int, key *K, from, to int64) bool {
	e := w.state.Find(group, key, from, to)
	return e != nil && w.dropPanes(e, from, to)
}

// dropPanes drops the panes of a key that end in (from, to], and what is kept of their items.
func (w *Windows[K, A]) dropPanes(e *state.PaneEntry[K, A], from, to int64) bool {
	dropped := w.state.DropPanes(e, from, to)
	if dropped && w.kept != nil {
		w.kept.drop(int(e.Group), &e.Key, to)
	}
	return dropped
}

// relieve emits what is held if it is too much.
func (w *Windows[K, A]) relieve() error {
	if len(w.held) >= maxHeld {
		return w.Flush()
	}
	return nil
}

// changed is a window that has been emitted for one of its panes.
type changed[K comparable, A any] struct {
	e   *state.PaneEntry[K, A]
	end int64
}

// Flush emits the windows that have changed: with Eager all of a changed pane,
// else those that had fired before.
func (w *Windows[K, A]) Flush() error {
	if w.keyed != nil {
		w.keyed.report()
	}
	if len(w.held) == 0 {
		return nil
	}
	var done map[changed[K, A]]bool // panes of one key share windows
	if w.win.Size != w.win.Pane && len(w.held) > 1 {
		done = make(map[changed[K, A]]bool, len(w.held))
	}
	for i := range w.held {
		if h := &w.held[i]; h.e != nil { // otherwise it has been emitted
			if err := w.emitHeld(h, w.timeOf(h.e), done); err != nil {
				return err
			}
		}
	}
	clear(w.held)
	w.held = w.held[:0]
	return w.out.Flush()
}

// emitHeld emits the windows of a held pane, at an event time of its key, and those of done no more.
func (w *Windows[K, A]) emitHeld(h *heldPane[K, A], now int64, done map[changed[K, A]]bool) error {
	win := &w.win
	if p := h.e.V.At(h.pane); p != nil {
		p.Held = 0
	}
	first, last := win.First(h.pane), win.Last(h.pane)
	w.state.BringIn(h.e, first-win.Size, last)
	for end := first; end <= last; end += win.Slide {
		fired := end <= now
		if fired && end+w.late <= now || !fired && !w.eager {
			continue
		}
		if done != nil {
			if done[changed[K, A]{h.e, end}] {
				continue
			}
			done[changed[K, A]{h.e, end}] = true
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
	return nil
}

func (w *Windows[K, A]) Timer() (text, name string) {
	if w.keyed != nil {
		return w.keyed.Timer()
	}
	key, end, ok := w.clock.Closed()
	if !ok {
		return "", ""
	}
	return chain.ShowTimer(fmt.Sprintf("window %q, its end", w.name), *key, end), chain.TimerName(w.name, w.keys, key, end)
}

func (w *Windows[K, A]) Stand(t int64) {
	if w.keyed != nil {
		w.keyed.w = max(w.keyed.w, t)
		return
	}
	w.clock.Stand(t)
}

func (w *Windows[K, A]) Advance(t int64, m *exec.Meter) (bool, error) {
	if err := w.Flush(); err != nil {
		return false, err
	}
	var done bool
	var err error
	if w.keyed != nil {
		done, err = w.keyed.advance(t, m)
	} else {
		done, err = w.clock.Advance(t, m)
	}
	if err != nil {
		return false, err
	}
	return done, w.out.Flush()
}

// Items returns what folds items into the windows; lates takes the late ones, and may be nil.
func Items[K comparable, T, A any](w *Windows[K, A], add func(acc *A, v *T, time int64), clone func(*T) (*T, error), lates *chain.Buffer[item.KV[K, T]]) chain.Emit[item.KV[K, T]] {
	return items(w, add, taker[K](clone), lates)
}

// take is called for each item that counts, before it is added, and returns what is added.
type take[K comparable, V any] func(group int, key *K, v *V, t int64) (*V, error)

func taker[K comparable, V any](clone func(*V) (*V, error)) take[K, V] {
	if clone == nil {
		return nil
	}
	return func(_ int, _ *K, v *V, _ int64) (*V, error) { return clone(v) }
}

func items[K comparable, T, A any](w *Windows[K, A], add func(acc *A, v *T, time int64), take take[K, T], lates *chain.Buffer[item.KV[K, T]]) chain.Emit[item.KV[K, T]] {
	if w.keyed != nil {
		return receiveByKey(w.keyed, nil, add, take, lates)
	}
	return func(b *item.Batch[item.KV[K, T]]) error {
		for i := range b.Items {
			kv, t := &b.Items[i], b.Times[i]
			pane, where := w.clock.Locate(b.Group, &kv.Key, t)
			s := w.pane(b.Group, &kv.Key, pane, where, t)
			if s == nil {
				if err := sendLateItem(lates, where, b, i); err != nil {
					return err
				}
				continue
			}
			v := &kv.Value
			if take != nil {
				var err error
				if v, err = take(b.Group, &kv.Key, v, t); err != nil {
					return err
				}
			}
			add(s, v, t)
			if where == panes.Reopen && w.each {
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
	if w.keyed != nil {
		of := func(p *item.Pane[A]) int64 { return p.End - 1 }
		add := func(acc *A, p *item.Pane[A], _ int64) { merge(acc, &p.Acc) }
		var own func(p *item.Pane[A]) (*item.Pane[A], error)
		if clone != nil {
			own = func(p *item.Pane[A]) (*item.Pane[A], error) {
				acc, err := clone(&p.Acc)
				if err != nil {
					return nil, err
				}
				return &item.Pane[A]{End: p.End, Acc: *acc}, nil
			}
		}
		return receiveByKey(w.keyed, of, add, taker[K](own), lates)
	}
	return func(b *item.Batch[item.KV[K, item.Pane[A]]]) error {
		for i := range b.Items {
			kv := &b.Items[i]
			pane, where := w.clock.Locate(b.Group, &kv.Key, kv.Value.End-1)
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
			if where == panes.Reopen && w.each {
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
func sendLateItem[T any](lates *chain.Buffer[T], where panes.Place, b *item.Batch[T], i int) error {
	if lates == nil || where != panes.Late {
		return nil
	}
	return lates.Add(b.Group, b.Items[i], b.At(i))
}
