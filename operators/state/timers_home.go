package state

import (
	"bytes"
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/timehome"
	"tailrace.dev/tailrace/operators/internal/timerqueue"
	"tailrace.dev/tailrace/operators/serde"
)

// farTimers is the additional state of Timers if the timers use a Home: the queue holds only
// the near ones, those before the horizon. The far ones are on disk by (time, key) and are read
// into the queue, a limited number at a time, when those before them have fired. What has fired is
// deleted as one range a commit.
//
// Invariants:
//
//  1. Every armed timer before the horizon is in the queue.
//  2. Every armed timer behind it is on disk, or has been armed since the last commit.
type farTimers struct {
	home    *timehome.Home
	ahead   bool   // there is a horizon; else all timers are near
	horizon []byte // the first far timer's key in the home
	keep    int    // how many timers the queue may hold
	scratch []byte
}

// fewTimers is the number of timers that the queue can always hold.
const fewTimers = 16

// spill implements pacer.
func (ts *Timers[K]) spill(h exec.Home) (rows, serde.Serde[PaneKey[K]]) {
	ts.disk = &farTimers{home: timehome.New(h, ts.armed.index.Groups()), keep: fewTimers}
	return ts.disk.home, timeFirst[K]{ts.keys}
}

// restored implements pacer: all timers are far, also those of other key groups.
func (ts *Timers[K]) restored(groups []int) {
	d := ts.disk
	for g := range ts.armed.index.Groups() {
		ts.armed.writeBack(g)
		ts.queue.DropGroup(g) // with the last one the queue is empty
	}
	of := make([]bool, ts.armed.index.Groups())
	for _, g := range groups {
		of[g] = true
	}
	d.home.All(nil, nil, func(group int, _, _ []byte) bool {
		if of[group] {
			ts.armed.count(group, 1)
		}
		return true
	})
	d.ahead, d.horizon = ts.armed.n > 0, timehome.Key(d.horizon[:0], exec.MinTime)
}

// far implements pacer.
func (ts *Timers[K]) far(key *PaneKey[K]) bool {
	d := ts.disk
	if d == nil || !d.ahead {
		return false
	}
	if t := timehome.Time(d.horizon); key.Pane != t {
		return key.Pane > t
	}
	d.scratch = ts.keys.Append(timehome.Key(d.scratch[:0], key.Pane), &key.Key)
	return bytes.Compare(d.scratch, d.horizon) >= 0
}

// sweep implements pacer: entries before the first pending timer are dead.
func (ts *Timers[K]) sweep() {
	d := ts.disk
	defer d.home.Clean()
	if t, enc, ok := ts.queue.First(); ok {
		d.scratch = timehome.Key(d.scratch[:0], t)
		d.home.Sweep(d.scratch, enc)
	} else if d.ahead {
		d.home.Sweep(d.horizon, nil)
	}
}

// trim implements pacer: it lowers the horizon when the queue is too long.
func (ts *Timers[K]) trim(limit int) int {
	d := ts.disk
	d.keep = max(limit/timerqueue.Size[K](), fewTimers)
	if n, _ := ts.queue.Len(); n > d.keep {
		t, enc := ts.queue.Cut(d.keep / 2)
		d.ahead, d.horizon = true, append(timehome.Key(d.horizon[:0], t), enc...)
		ts.armed.evictAll()
	}
	_, bytes := ts.queue.Len()
	return bytes
}

// refill reads timers into an empty queue if any are due by w.
func (ts *Timers[K]) refill(w int64) bool {
	d := ts.disk
	if d == nil || !d.ahead || timehome.Time(d.horizon) > w {
		return false
	}
	for _, e := range ts.armed.dirty {
		if !e.V.dead && ts.far(&e.Key) {
			ts.armed.write(e)
		}
	}
	d.home.Flush()
	from, n := bytes.Clone(d.horizon), max(d.keep/2, 1)
	d.ahead = false
	d.home.All(from, nil, func(group int, key, value []byte) bool {
		if n--; n < 0 {
			d.ahead, d.horizon = true, append(d.horizon[:0], key...)
			return false
		}
		var k PaneKey[K]
		if _, err := ts.armed.homeKeys.Decode(bytes.Clone(key), &k); err != nil {
			panic(fmt.Sprintf("operators: state %q: key: %v", ts.armed.name, err)) // invariant: a serde reads what it wrote
		}
		e := ts.armed.index.Find(group, &k)
		if e == nil {
			e = ts.armed.bring(group, &k, value)
		}
		ts.queue.Add(k.Pane, group, e.Key.Key)
		return true
	})
	return true
}
