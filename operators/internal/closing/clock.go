package closing

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/internal/timerqueue"
	"tailrace.dev/tailrace/operators/serde"
)

// Clock closes the windows of an operator with aligned windows as event time advances. It calls
// the operator for each key whose window closes, and for each pane that no window needs any more.
//
// A key has at most one timer per pane, and one for the next window to close: when a window fires and
// some of its panes are in the next window, too, that window's timer is set. So an item or a firing
// touches no more timers than it has panes.
//
// When one of several overlapping windows fires, most of its panes stay in the table, so the panes do
// not tell a restarted task that it has fired. The cursor does: for each key group, the (time, key) up
// to which windows have fired. Invariant: the window (end, key) fires exactly once, when the watermark
// passes its end, in the order of (end, key).
type Clock[K comparable] struct {
	panes.Finder
	lateness int64
	fires    *timerqueue.Queue[K]
	drops    *timerqueue.Queue[K] // at the end of lateness; unused without it
	disk     *paneScan[K]         // instead of timers, if panes use a Home
	cursors  *Cursors[K]
	w        int64
	ahead    int64 // the highest cursor, when w was set
	name     string
	closed   bool // a window, in this call; the newest is that of key that ends at closing
	closing  int64
	key      K // being fired; a local one would escape, an allocation a timer

	op    Operator[K]
	timed exec.Timed // op
}

// Operator is the operator whose windows a Clock closes.
type Operator[K comparable] interface {
	exec.Timed
	// Fire is called when window [end-size, end) of a key closes. some: it had a pane; more: it had
	// one that is also in the next window.
	Fire(group int, key *K, end int64) (some, more bool, err error)
	// Drop is called when no window needs the panes of a key any more whose end is in (from, to].
	// It returns whether there were any.
	Drop(group int, key *K, from, to int64) bool
}

// NewClock returns the clock of an operator for a stage of this number of key groups; lateness
// is in ms.
func NewClock[K comparable](name string, groups int, win panes.Aligned, lateness int64, keys serde.Serde[K], op Operator[K]) *Clock[K] {
	return &Clock[K]{
		name: name, Finder: panes.NewFinder(win), lateness: lateness, op: op, timed: op,
		fires: timerqueue.New(groups, keys), drops: timerqueue.New(groups, keys),
		cursors: NewCursors(name, groups, keys),
		w:       exec.MinTime, ahead: exec.MinTime,
	}
}

// Watermark returns the event time that the clock has reached.
func (p *Clock[K]) Watermark() int64 { return p.w }

// Stand sets the event time after a restore.
func (p *Clock[K]) Stand(w int64) { p.w, p.ahead = max(p.w, w), p.cursors.highest() }

// At returns the event time that the windows of a key have reached. It is that of the clock, unless the key
// group comes, by a savepoint, from a task that was further on: then up to its cursor they have fired.
func (p *Clock[K]) At(group int, key *K) int64 {
	if p.ahead <= p.w {
		return p.w
	}
	return max(p.w, p.cursors.Fired(group, 0, key))
}

// Cursors returns the clock's state, which must be restored before the panes.
func (p *Clock[K]) Cursors() exec.StateTable { return p.cursors.fired }

// Locate finds the pane of time t and returns where it counts for a key.
func (p *Clock[K]) Locate(group int, key *K, t int64) (pane int64, where panes.Place) {
	p.Find(t)
	return p.Pane, p.Place(p.At(group, key), p.lateness)
}

// Created sets the timers that a new pane of a key needs; locate was called for it. key must not
// alias an item.
func (p *Clock[K]) Created(group int, key K) {
	first, w := p.First, p.w
	if p.ahead > w {
		p.key = key
		w = p.At(group, &p.key)
	}
	if first <= w {
		// Windows of this pane that have closed must not fire for it. A restart would not know:
		// nothing needs to have fired at w. A cursor that is further on stays.
		first = p.Windows.After(w)
		p.cursors.Set(group, 0, p.w, nil)
	}
	if p.disk != nil {
		p.disk.done = min(p.disk.done, first-1) // after a restore it may have been too far
		return
	}
	if first <= p.Last {
		p.fires.Add(first, group, key)
	}
	if p.lateness > 0 {
		p.drops.Add(p.Last+p.lateness, group, key)
	}
}

// Restored implements state.Closing: it is Created for a pane that comes from the change log.
func (p *Clock[K]) Restored(group int, key K, pane int64) {
	p.Finder.Set(pane)
	first := p.First
	if fired := p.cursors.Fired(group, 0, &key); first <= fired {
		first = p.Windows.After(fired)
	}
	if first <= p.Last {
		p.fires.Add(first, group, key)
	}
	if p.lateness > 0 {
		p.drops.Add(p.Last+p.lateness, group, key)
	}
}

// Advance fires what is due by w, until m is over, and reports whether all has fired.
func (p *Clock[K]) Advance(w int64, m *exec.Meter) (done bool, err error) {
	p.closed = false
	if p.disk != nil {
		return p.advanceDisk(w, m)
	}
	for {
		fireAt, fires := p.fires.Peek()
		dropAt, drops := p.drops.Peek()
		switch {
		case fires && fireAt <= w && (!drops || fireAt <= dropAt):
			var end int64
			var group int
			var ok bool
			if end, group, p.key, ok = p.fires.Pop(w); !ok {
				continue // those that were due have moved to another task
			}
			_, more, err := p.close(group, end, m)
			if err != nil {
				return false, err
			}
			p.cursors.Set(group, 0, end, &p.key)
			if more {
				p.fires.Add(end+p.Windows.Slide, group, p.key)
			}
			if p.lateness == 0 {
				p.dropBehind(group, &p.key, end)
			}
		case drops && dropAt <= w:
			var t int64
			var group int
			var ok bool
			if t, group, p.key, ok = p.drops.Pop(w); !ok {
				continue
			}
			m.Unit(p.dropBehind(group, &p.key, t-p.lateness))
		default:
			p.w = max(p.w, w)
			return true, nil
		}
		if m.Over() {
			return false, nil
		}
	}
}

// close closes the window of p.key that ends at end.
func (p *Clock[K]) close(group int, end int64, m *exec.Meter) (some, more bool, err error) {
	p.closed, p.closing = true, end
	if some, more = true, true; !m.Avoids(p.timed) {
		some, more, err = p.op.Fire(group, &p.key, end)
	}
	m.Unit(some)
	return some, more, err
}

// Closed returns the key and the end of the window that the current call has closed last; ok is
// false if there is none.
func (p *Clock[K]) Closed() (key *K, end int64, ok bool) { return &p.key, p.closing, p.closed }

// dropBehind drops the panes whose last window ends at end.
func (p *Clock[K]) dropBehind(group int, key *K, end int64) bool {
	return p.op.Drop(group, key, end-p.Windows.Size, end-p.Windows.Size+p.Windows.Slide)
}

// Dropped implements state.Closing.
func (p *Clock[K]) Dropped(group int) {
	if p.disk != nil {
		p.droppedOnDisk(group)
	}
	p.fires.DropGroup(group)
	p.drops.DropGroup(group)
}
