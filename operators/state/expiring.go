package state

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// Expiring is a table whose values end. Each entry has one timer, which is not moved when
// the entry is written: it looks then whether the entry has ended, or sets itself again.
type Expiring[P comparable, V any] struct {
	m      *Map[P, ending[V]]
	timers *Timers[P]
	vals   serde.Serde[V]
	span   int64
	now    func() int64
	// gone, if set, is called with an entry that has ended, and left the table.
	gone func(group int, key *P)
	key  P // being looked at; a local one would escape, an allocation a timer
}

// ending is a value that ends at until, and its timer. Invariant: armed ≤ until.
type ending[V any] struct {
	until, armed int64
	val          V
}

func endingSerde[V any](vals serde.Serde[V]) serde.Serde[ending[V]] {
	return serde.New("ending "+serde.NameOf(vals),
		func(dst []byte, v *ending[V]) []byte {
			return vals.Append(serde.AppendInt64(serde.AppendInt64(dst, v.until), v.until-v.armed), &v.val)
		},
		func(r *serde.Reader, v *ending[V]) {
			v.until = r.Int64()
			v.armed = v.until - r.Int64()
			serde.Take(r, vals, &v.val)
		})
}

// NewExpiring returns an empty table whose values end span after they were last written; now
// returns the event time.
func NewExpiring[P comparable, V any](name string, groups int, keys serde.Serde[P], vals serde.Serde[V], span int64, now func() int64) *Expiring[P, V] {
	return &Expiring[P, V]{
		m:      NewMap(name, groups, keys, endingSerde(vals)),
		timers: NewTimers(name+".ends", groups, keys),
		vals:   vals, span: span, now: now,
	}
}

// Tables returns the timers and the values.
func (x *Expiring[P, V]) Tables() []exec.StateTable { return []exec.StateTable{x.timers.armed, x.m} }

// Get returns the value of a key, to read, or nil if it has none or the value has ended.
func (x *Expiring[P, V]) Get(group int, key *P) *V {
	if e := x.m.Get(group, key); e != nil && e.until > x.now() {
		return &e.val
	}
	return nil
}

// Update returns the value of a key, to change in place, or nil.
func (x *Expiring[P, V]) Update(group int, key *P) *V {
	if x.Get(group, key) == nil {
		return nil
	}
	e := x.m.Update(group, key)
	x.extend(e)
	return &e.val
}

func (x *Expiring[P, V]) extend(e *ending[V]) {
	until := exec.MaxTime
	if now := x.now(); now < exec.MaxTime-x.span {
		until = now + x.span
	}
	e.until = max(e.until, until)
}

// Entry returns the value of a key, to change in place, with the table's own copy of the key.
func (x *Expiring[P, V]) Entry(group int, key *P) (own *P, v *V, created bool) {
	now := x.now()
	own, s, created := x.m.Entry(group, key)
	switch {
	case created:
		s.until = exec.MinTime
		x.extend(s)
		s.armed = s.until
		x.timers.Set(group, own, s.armed)
	case s.until <= now:
		var zero V
		s.val = zero
		x.extend(s)
	default:
		x.extend(s)
	}
	return own, &s.val, created
}

// Put sets the value of a key to a clone of *v.
func (x *Expiring[P, V]) Put(group int, key *P, v *V) error {
	_, dst, _ := x.Entry(group, key)
	if err := serde.CloneInto(x.vals, dst, v); err != nil {
		return fmt.Errorf("state %q: %w", x.m.name, err)
	}
	return nil
}

// Delete removes a key, if it is there.
func (x *Expiring[P, V]) Delete(group int, key *P) {
	if e := x.m.Get(group, key); e != nil {
		x.timers.Delete(group, key, e.armed)
		x.m.Delete(group, key)
	}
}

// Advance removes what has ended by w, until m is over.
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
		if e := x.m.Get(group, &x.key); e.until > t {
			e = x.m.Update(group, &x.key)
			e.armed = e.until
			x.timers.Set(group, &x.key, e.armed)
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
