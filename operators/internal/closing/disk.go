package closing

import (
	"slices"
	"sort"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/state"
)

// paneScan replaces the timers of a Clock if panes use a Home. The ends of existing panes
// determine which windows fire; a scan of the window's panes in the order of keys, a part at a
// time, determines which keys fire. A scan that an interrupted advance has left continues where it
// stopped.
//
// Invariants:
//
//  1. Of the windows that end by done nothing is left to fire, nor, of one that ends
//     later and has a pane, of the keys up to their group's cursor.
//  2. No item comes between the calls of one interrupted advance (Chain.Advance).
type paneScan[K comparable] struct {
	panes state.OnDisk[K]
	ends  *panes.Ends
	done  int64

	on    bool
	fires bool  // else it drops
	time  int64 // when this is due: a window's end, or the end of its lateness
	// The panes concerned end in (from, to].
	from, to int64
	due      []state.DueKey[K]
	pos      int
	upTo     []byte // keys up to it have been read, nil: none
	more     bool
}

// Spilled implements state.Closing.
func (p *Clock[K]) Spilled(panes state.OnDisk[K], ends *panes.Ends) {
	p.disk = &paneScan[K]{panes: panes, ends: ends, done: exec.MinTime}
}

// advanceDisk is Advance if panes use a Home.
func (p *Clock[K]) advanceDisk(w int64, m *exec.Meter) (done bool, err error) {
	s := p.disk
	for {
		if !s.on && !p.begin(w) {
			p.w = max(p.w, w)
			if w < exec.MaxTime {
				s.done = max(s.done, w)
			}
			return true, nil
		}
		x := s.next()
		switch {
		case x == nil:
			p.end()
			continue
		case s.fires:
			if p.cursors.passed(x.Group, s.time, x.Enc) {
				continue
			}
			p.key = x.Key
			if _, _, err := p.close(x.Group, s.time, m); err != nil {
				return false, err
			}
			p.cursors.Set(x.Group, 0, s.time, &p.key)
			if p.lateness == 0 {
				p.dropBehind(x.Group, &p.key, s.time)
			}
		default:
			p.key = x.Key
			m.Unit(p.dropBehind(x.Group, &p.key, s.time-p.lateness))
		}
		if m.Over() {
			return false, nil
		}
	}
}

// begin starts the scan that is due next, if it is due by w.
func (p *Clock[K]) begin(w int64) bool {
	s := p.disk
	fireAt, fires := p.nextFire()
	dropAt, drops := p.nextDrop()
	switch {
	case fires && fireAt <= w && (!drops || fireAt <= dropAt):
		s.fires, s.time, s.from, s.to = true, fireAt, fireAt-p.Windows.Size, fireAt
	case drops && dropAt <= w:
		from := dropAt - p.lateness - p.Windows.Size
		s.fires, s.time, s.from, s.to = false, dropAt, from, from+p.Windows.Slide
	default:
		return false
	}
	s.on, s.due, s.pos, s.upTo, s.more = true, nil, 0, nil, true
	s.panes.WriteBack(s.from, s.to)
	return true
}

// nextFire returns the end of the next window that has a pane.
func (p *Clock[K]) nextFire() (end int64, ok bool) {
	s := p.disk
	i := sort.Search(len(s.ends.All), func(i int) bool { return p.Windows.Last(s.ends.All[i].End) > s.done })
	if i == len(s.ends.All) {
		return 0, false
	}
	if end = p.Windows.First(s.ends.All[i].End); end <= s.done {
		end = p.Windows.After(s.done)
	}
	return end, true
}

// nextDrop returns when the next panes' lateness ends; without lateness they are dropped
// when their last window fires.
func (p *Clock[K]) nextDrop() (t int64, ok bool) {
	s := p.disk
	if p.lateness == 0 || len(s.ends.All) == 0 {
		return 0, false
	}
	return p.Windows.Last(s.ends.All[0].End) + p.lateness, true
}

// next returns the next key that is due, nil at the end.
func (s *paneScan[K]) next() *state.DueKey[K] {
	for s.pos == len(s.due) {
		if !s.more {
			return nil
		}
		s.due, s.upTo, s.more = s.panes.Collect(s.from, s.to, s.upTo)
		s.pos = 0
	}
	s.pos++
	return &s.due[s.pos-1]
}

// end ends a scan: it deletes what no window needs any more, as one range.
func (p *Clock[K]) end() {
	s := p.disk
	if s.on = false; s.fires {
		s.done = s.time
		if p.lateness > 0 {
			return
		}
		s.to = s.from + p.Windows.Slide
	}
	s.panes.Expire(s.from, s.to)
}

// RestoredOnDisk is Restored for all panes of some key groups, of each of which of says whether it is one: it
// goes back to the position of the first of them. What has fired of the other groups is behind their cursors.
// No scan is interrupted: event time stands until a task has all of its groups.
func (p *Clock[K]) RestoredOnDisk(of []bool) {
	s := p.disk
	seen := make([]bool, s.ends.Groups)
	some := s.done > exec.MinTime || s.others(of) // the table is in use
	for i := range s.ends.All {
		for g, n := range s.ends.All[i].By {
			if n == 0 || seen[g] || !of[g] {
				continue
			}
			seen[g] = true
			stood := p.Windows.First(s.ends.All[i].End) - 1
			if t, ok := p.cursors.stands(g); ok {
				stood = t - 1
			}
			if !some || stood < s.done {
				some, s.done = true, stood
			}
		}
	}
}

// others reports whether there are panes of groups other than those of which of says that they are meant. A task that is new
// in its stage may have made some, before event time moved in it for the first time.
func (s *paneScan[K]) others(of []bool) bool {
	for i := range s.ends.All {
		for g, n := range s.ends.All[i].By {
			if n > 0 && !of[g] {
				return true
			}
		}
	}
	return false
}

// droppedOnDisk removes what is due of a key group that has moved away.
func (p *Clock[K]) droppedOnDisk(group int) {
	s := p.disk
	s.due = slices.DeleteFunc(s.due[s.pos:], func(x state.DueKey[K]) bool { return x.Group == group })
	s.pos = 0
}
