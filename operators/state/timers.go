package state

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/timerqueue"
	"tailrace.dev/tailrace/operators/serde"
)

// Timers are timers that a function has set: state, and the queue derived from it.
type Timers[K comparable] struct {
	keys  serde.Serde[K]
	armed *Map[PaneKey[K], struct{}]
	queue *timerqueue.Queue[K]
	disk  *farTimers // nil: armed is in memory
	key   PaneKey[K] // a local one would escape, an allocation a timer
	watch func(group int, key *K, t int64, comes bool)
}

// NewTimers returns no timers, for a stage of this number of key groups.
func NewTimers[K comparable](name string, groups int, keys serde.Serde[K]) *Timers[K] {
	ts := &Timers[K]{
		keys:  keys,
		armed: NewMap(name, groups, serde.Serde[PaneKey[K]](paneKeySerde[K]{keys}), serde.Unit),
		queue: timerqueue.New(groups, keys),
	}
	ts.armed.restored = func(group int, k *PaneKey[K], _ *struct{}) { ts.come(group, k) }
	ts.armed.dropped = ts.queue.DropGroup
	ts.armed.pace = ts
	return ts
}

// Watch sets a function that is told of each timer that comes and goes, those of the change log
// included. The timers are in memory then.
func (ts *Timers[K]) Watch(f func(group int, key *K, t int64, comes bool)) {
	ts.watch, ts.armed.small = f, true
}

// come adds a timer that is set.
func (ts *Timers[K]) come(group int, k *PaneKey[K]) {
	ts.queue.Add(k.Pane, group, k.Key)
	if ts.watch != nil {
		ts.watch(group, &k.Key, k.Pane, true)
	}
}

// Next returns the time of the first timer that is due by w; ok is false if there is none.
func (ts *Timers[K]) Next(w int64) (t int64, ok bool) {
	for {
		if t, ok = ts.queue.Peek(); ok {
			return t, t <= w
		}
		if !ts.refill(w) {
			return 0, false
		}
	}
}

// Set sets a timer of a key; one that is set already stays one.
func (ts *Timers[K]) Set(group int, key *K, t int64) {
	ts.key = PaneKey[K]{*key, t}
	e, created := ts.armed.upsert(group, &ts.key)
	if created && !ts.far(&e.Key) {
		ts.come(group, &e.Key)
	}
}

// Delete removes a timer, if it is set.
func (ts *Timers[K]) Delete(group int, key *K, t int64) {
	ts.key = PaneKey[K]{*key, t}
	ts.armed.Delete(group, &ts.key)
	if ts.watch != nil {
		ts.watch(group, key, t, false)
	}
}

// Has reports whether a timer is set.
func (ts *Timers[K]) Has(group int, key *K, t int64) bool {
	ts.key = PaneKey[K]{*key, t}
	return ts.armed.Get(group, &ts.key) != nil
}

// Pop removes and returns the first timer that is due by w, of those that Next has found; ok is
// false if there is none.
func (ts *Timers[K]) Pop(w int64) (t int64, group int, key K, ok bool) {
	for {
		if t, group, key, ok = ts.queue.Pop(w); !ok {
			return t, group, key, false
		}
		ts.key = PaneKey[K]{key, t}
		if ts.armed.Get(group, &ts.key) != nil { // otherwise it was deleted
			ts.armed.Delete(group, &ts.key)
			if ts.watch != nil {
				ts.watch(group, &ts.key.Key, t, false)
			}
			return t, group, key, true
		}
	}
}

// Table returns the timers' state.
func (ts *Timers[K]) Table() exec.StateTable { return ts.armed }
