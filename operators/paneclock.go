package operators

import (
	"bytes"
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// paneClock is the time of an operator with aligned windows: it decides which windows are closed,
// and calls back for each key when one of its windows closes and when no window needs a pane any
// more.
//
// A key has at most one timer a pane and one that moves: when a window fires and its panes extend
// into the next window, the timer of that one is set. So neither an item nor a firing touches more
// timers than it has panes.
//
// When a window of overlapping ones fires, most of its panes stay, so the state alone would not
// show a restarted task that it has fired. The cursor does: one small entry a key group, the (time,
// key) up to which windows have fired. Invariant: a window (end, key) fires once, exactly when
// (end, key) passes the cursor or, above it, the watermark.
type paneClock[K comparable] struct {
	win      Windows
	lateness int64
	keys     serde.Serde[K]
	fires    *timerQueue[K]
	drops    *timerQueue[K] // at the end of lateness; unused without it
	disk     *paneScan[K]   // instead of timers, if panes use a Home
	cursors  *StateMap[uint8, firedUpTo]
	w        int64
	scratch  []byte
	name     string
	closed   bool // a window, in this call; the newest is that of key that ends at closing
	closing  int64
	key      K // being fired; a local one would escape, an allocation a timer

	// fire is called when window [end-size, end) of a key closes. some: it had a pane; more: it had
	// one that is also in the next window.
	fire func(group int, key *K, end int64) (some, more bool, err error)
	// drop is called when no window needs the panes of a key any more whose end is in (from, to].
	// It returns whether there were any.
	drop func(group int, key *K, from, to int64) bool

	// The pane of the previous item: items come nearly in order, so mostly it is the next item's
	// pane too, without a division.
	pane, firstEnd, lastEnd int64
}

// firedUpTo: windows that end before time have fired, and of those that end at it the keys up to
// key; all keys if all.
type firedUpTo struct {
	time int64
	all  bool
	key  []byte
}

var firedSerde = serde.New("fired up to",
	func(dst []byte, c *firedUpTo) []byte {
		return serde.AppendBytes(serde.AppendBool(serde.AppendInt64(dst, c.time), c.all), c.key)
	},
	func(r *serde.Reader, c *firedUpTo) { c.time, c.all, c.key = r.Int64(), r.Bool(), r.Bytes() })

func newPaneClock[K comparable](name string, rt Runtime, win Windows, lateness int64, keys serde.Serde[K]) *paneClock[K] {
	p := &paneClock[K]{
		name: name, win: win, lateness: lateness, keys: keys,
		fires: newTimerQueue(keys), drops: newTimerQueue(keys),
		cursors: NewStateMap(name+".fired", rt.Groups(), uint8Serde, firedSerde),
		w:       MinTime,
	}
	p.cursors.small = true
	p.setPane(0)
	return p
}

var uint8Serde = serde.New("uint8",
	func(dst []byte, v *uint8) []byte { return append(dst, *v) },
	func(r *serde.Reader, v *uint8) { *v = uint8(r.Uint32()) })

var onlyKey uint8

// place says where an item of a certain time counts.
type place int

const (
	open   place = iota // in windows that have yet to fire
	reopen              // also in windows that have fired, within the lateness
	late                // in closed windows only
	gap                 // in no window at all
)

// locate returns the pane of time t and where it counts. It leaves the pane's first and last window
// ends in firstEnd and lastEnd.
func (p *paneClock[K]) locate(t int64) (pane int64, where place) {
	if t < p.pane-p.win.pane || t >= p.pane {
		p.setPane(p.win.paneOf(t))
	}
	return p.pane, p.standing()
}

func (p *paneClock[K]) setPane(pane int64) {
	p.pane = pane
	p.firstEnd, p.lastEnd = p.win.first(pane), p.win.last(pane)
}

func (p *paneClock[K]) standing() place {
	switch {
	case p.firstEnd > p.w:
		if p.lastEnd < p.pane {
			return gap
		}
		return open
	case p.lastEnd < p.pane:
		return gap
	case p.lastEnd+p.lateness <= p.w:
		return late
	case p.lateness > 0:
		return reopen
	}
	return open
}

// created sets the timers that a new pane of a key needs; locate was called for it. key must not
// alias an item.
func (p *paneClock[K]) created(group int, key K) {
	first := p.firstEnd
	if first <= p.w {
		// Windows of this pane that have closed must not fire for it. A restart would not know:
		// nothing needs to have fired at w.
		first = p.win.after(p.w)
		p.setCursor(group, p.w, nil)
	}
	if p.disk != nil {
		p.disk.done = min(p.disk.done, first-1) // after a restore it may have been too far
		return
	}
	if first <= p.lastEnd {
		p.fires.add(first, group, key)
	}
	if p.lateness > 0 {
		p.drops.add(p.lastEnd+p.lateness, group, key)
	}
}

// restored is created for a pane that comes from the change log.
func (p *paneClock[K]) restored(group int, key K, pane int64) {
	p.setPane(pane)
	first := p.firstEnd
	if c := p.cursors.Get(group, &onlyKey); c != nil && first <= c.time {
		first = p.win.after(c.time - 1)
		p.scratch = p.keys.Append(p.scratch[:0], &key)
		if first == c.time && (c.all || bytes.Compare(p.scratch, c.key) <= 0) {
			first = p.win.after(c.time)
		}
	}
	if first <= p.lastEnd {
		p.fires.add(first, group, key)
	}
	if p.lateness > 0 {
		p.drops.add(p.lastEnd+p.lateness, group, key)
	}
}

// setCursor moves a key group's cursor; a nil key means all keys.
func (p *paneClock[K]) setCursor(group int, t int64, key *K) {
	c, created := p.cursors.Upsert(group, &onlyKey)
	if !created && c.time > t {
		return
	}
	c.time, c.all, c.key = t, key == nil, c.key[:0]
	if key != nil {
		c.key = p.keys.Append(c.key, key)
	}
}

// advance fires what is due by w. See advancer.
func (p *paneClock[K]) advance(w int64, m *meter) (done bool, err error) {
	p.closed = false
	if p.disk != nil {
		return p.advanceDisk(w, m)
	}
	for {
		fireAt, fires := p.fires.peek()
		dropAt, drops := p.drops.peek()
		switch {
		case fires && fireAt <= w && (!drops || fireAt <= dropAt):
			var end int64
			var group int
			end, group, p.key, _ = p.fires.pop(w)
			_, more, err := p.close(group, end, m)
			if err != nil {
				return false, err
			}
			p.setCursor(group, end, &p.key)
			if more {
				p.fires.add(end+p.win.slide, group, p.key)
			}
			if p.lateness == 0 {
				p.dropBehind(group, &p.key, end)
			}
		case drops && dropAt <= w:
			var t int64
			var group int
			t, group, p.key, _ = p.drops.pop(w)
			m.unit(p.dropBehind(group, &p.key, t-p.lateness))
		default:
			p.w = max(p.w, w)
			return true, nil
		}
		if m.over() {
			return false, nil
		}
	}
}

// close closes the window of p.key that ends at end.
func (p *paneClock[K]) close(group int, end int64, m *meter) (some, more bool, err error) {
	p.closed, p.closing = true, end
	if some, more = true, true; !m.avoids(p) {
		some, more, err = p.fire(group, &p.key, end)
	}
	m.unit(some)
	return some, more, err
}

func (p *paneClock[K]) timer() (text, name string) {
	if !p.closed {
		return "", ""
	}
	return showTimer(fmt.Sprintf("window %q, its end", p.name), p.key, p.closing), timerName(p.name, p.keys, &p.key, p.closing)
}

// dropBehind drops the panes whose last window ends at end.
func (p *paneClock[K]) dropBehind(group int, key *K, end int64) bool {
	return p.drop(group, key, end-p.win.size, end-p.win.size+p.win.slide)
}

func (p *paneClock[K]) dropGroup(group int) {
	if p.disk != nil {
		p.dropGroupDisk(group)
	}
	p.fires.dropGroup(group)
	p.drops.dropGroup(group)
}

func (w Windows) check(j *Job, what string) {
	if w.err != "" {
		j.errorf("%s: %s", what, w.err)
	} else if w.size == 0 {
		j.errorf("%s: no windows given", what)
	}
}
