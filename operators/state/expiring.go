package state

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/ending"
	"tailrace.dev/tailrace/operators/serde"
)

// Expiring is a Map whose values may have an end. An entry with an end has one timer. Writing the
// entry does not move the timer: when it fires, it removes the entry if that has ended, and is set
// again otherwise.
type Expiring[P comparable, V any] struct {
	m      *Map[P, V]
	timers *Timers[P] // nil: values do not end
	span   int64
	now    func() int64
	// gone, if set, is called with an entry that has ended, and left the table.
	gone func(group int, key *P)
	key  P // being looked at; a local one would escape, an allocation a timer
}

// NewExpiring returns an empty table whose values end span ms after they were last written, 0: never.
// now returns the event time.
func NewExpiring[P comparable, V any](name string, groups int, keys serde.Serde[P], vals serde.Serde[V], span int64, now func() int64) *Expiring[P, V] {
	x := &Expiring[P, V]{m: NewMap(name, groups, keys, vals), span: span, now: now}
	if span > 0 {
		x.m.ends = ending.New(groups)
		x.timers = NewTimers(name+".ends", groups, keys)
	}
	return x
}

// Tables returns the timers, if values end, and the values.
func (x *Expiring[P, V]) Tables() []exec.StateTable {
	if x.timers == nil {
		return []exec.StateTable{x.m}
	}
	return []exec.StateTable{x.timers.armed, x.m}
}

// find returns a key's entry, unless its value has ended, or nil.
func (x *Expiring[P, V]) find(group int, key *P) *mapEntry[P, V] {
	e := x.m.find(group, key)
	if e == nil || e.V.dead {
		return nil
	}
	if x.timers != nil && x.m.ends.Of(e.Group, e.At).Until <= x.now() {
		return nil
	}
	return e
}

// Get returns the value of a key, to read, or nil if it has none or the value has ended.
func (x *Expiring[P, V]) Get(group int, key *P) *V {
	if e := x.find(group, key); e != nil {
		return &e.V.val
	}
	return nil
}

// Update returns the value of a key, to change in place, or nil.
func (x *Expiring[P, V]) Update(group int, key *P) *V {
	e := x.find(group, key)
	if e == nil {
		return nil
	}
	x.m.touch(e)
	if x.timers != nil {
		x.extend(x.m.ends.Of(e.Group, e.At))
	}
	return &e.V.val
}

func (x *Expiring[P, V]) extend(e *ending.Ending) {
	until := exec.MaxTime
	if now := x.now(); now < exec.MaxTime-x.span {
		until = now + x.span
	}
	e.Until = max(e.Until, until)
}

// Entry returns the value of a key, to change in place, with the table's own copy of the key. A key
// that was not there gets a zero value, and created is true; one whose value has ended gets a zero
// value.
func (x *Expiring[P, V]) Entry(group int, key *P) (own *P, v *V, created bool) {
	e, created := x.m.upsert(group, key)
	if x.timers == nil {
		return &e.Key, &e.V.val, created
	}
	end := x.m.ends.Of(e.Group, e.At)
	if created {
		end.Until = exec.MinTime
		x.extend(end)
		end.Armed = end.Until
		x.timers.Set(group, &e.Key, end.Armed)
		return &e.Key, &e.V.val, created
	}
	if end.Until <= x.now() {
		var zero V
		e.V.val = zero
	}
	x.extend(end)
	return &e.Key, &e.V.val, created
}

// Put sets the value of a key to a clone of *v.
func (x *Expiring[P, V]) Put(group int, key *P, v *V) error {
	_, dst, _ := x.Entry(group, key)
	if err := serde.CloneInto(x.m.vals, dst, v); err != nil {
		return fmt.Errorf("state %q: %w", x.m.name, err)
	}
	return nil
}

// Delete removes a key, if it is there.
func (x *Expiring[P, V]) Delete(group int, key *P) {
	if x.timers != nil {
		if e := x.m.find(group, key); e != nil && !e.V.dead {
			x.timers.Delete(group, key, x.m.ends.Of(e.Group, e.At).Armed)
		}
	}
	x.m.Delete(group, key)
}

// Advance removes what has ended by w, until m is over. It is for tables whose values end.
func (x *Expiring[P, V]) Advance(w int64, m *exec.Meter) (done bool, err error) {
	for {
		if _, ok := x.timers.Next(w); !ok {
			return true, nil
		}
		var t int64
		var group int
		var ok bool
		if t, group, x.key, ok = x.timers.Pop(w); !ok {
			continue // the entry was deleted
		}
		e := x.m.find(group, &x.key)
		if end := x.m.ends.Of(e.Group, e.At); end.Until > t {
			x.m.touch(e)
			end.Armed = end.Until
			x.timers.Set(group, &x.key, end.Armed)
		} else {
			x.m.Delete(group, &x.key)
			if x.gone != nil {
				x.gone(group, &x.key)
			}
		}
		if m.Units++; m.Over() {
			return false, nil
		}
	}
}
