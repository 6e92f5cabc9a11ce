package progress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tailrace.dev/tailrace/tasks/envelope"
)

const (
	minTime int64 = -1 << 63
	maxTime int64 = 1<<63 - 1
)

// Table is what a task knows about its producers: per (stage, task) the newest commit, watermark,
// idle and ended. It is the Seen list of the task's markers.
type Table struct {
	seen []envelope.Seen // sorted by (Stage, Task)
	// producer is the producing stage of each input stream; known says whether its tasks have been
	// registered. Until all are, event time does not advance.
	producer map[uint32]uint32
	known    map[uint32]bool
	// plan is the number of the newest plan by which a producing stage was registered.
	plan      map[uint32]uint64
	watermark int64
}

// NewTable returns the table of a task that has never committed. inputs maps
// each stream it reads to the stage that produces it.
func NewTable(inputs map[uint32]uint32) *Table {
	return &Table{producer: inputs, known: make(map[uint32]bool), plan: make(map[uint32]uint64), watermark: minTime}
}

// Restore sets the table to the contents of a marker, where floor is the marker's watermark. If the
// producing stage of a stream is in seen, the stream was registered before that marker, because
// Register enters all of a stage's tasks at once.
func (t *Table) Restore(seen []envelope.Seen, floor int64) {
	t.seen = slices.Clone(seen)
	t.watermark = floor
	slices.SortFunc(t.seen, bySource)
	for stream, stage := range t.producer {
		if _, ok := t.find(stage, 0); ok {
			t.known[stream] = true
		}
	}
	t.advance()
}

// Register handles a stream's producers record: from here on the stream has the tasks 0 … p.Tasks-1
// of p.Stage as producers. Repeats have no effect.
//
// A task that a later plan adds, or names again after it has left, holds the watermark where it is
// until its first marker, which may promise less (pitfall T4). A task that a later plan does not name
// stays until the marker with which it leaves. Until its first marker a task sends by the tables of the
// record's epoch. The caller does not register again what was registered
// below its position: a task may have left since.
func (t *Table) Register(p *envelope.Producers) error {
	stage, ours := t.producer[p.Stream]
	switch {
	case !ours || t.known[p.Stream] && p.Plan <= t.plan[stage]:
		return nil
	case p.Stage != stage:
		return fmt.Errorf("stream %d: registered with producing stage %d, the plan says %d", p.Stream, p.Stage, stage)
	}
	t.known[p.Stream], t.plan[stage] = true, max(p.Plan, t.plan[stage])
	for i := range p.Tasks {
		_, known := t.find(stage, uint32(i))
		if e := t.entry(stage, uint32(i)); e.Left || !known {
			*e = envelope.Seen{Stage: e.Stage, Task: e.Task, Commit: e.Commit, Watermark: minTime, Epoch: p.Epoch}
		}
	}
	t.advance()
	return nil
}

// Known reports whether the producers of all inputs have been registered.
func (t *Table) Known() bool { return len(t.known) == len(t.producer) }

func bySource(a, b envelope.Seen) int {
	if c := cmp.Compare(a.Stage, b.Stage); c != 0 {
		return c
	}
	return cmp.Compare(a.Task, b.Task)
}

func (t *Table) find(stage, task uint32) (int, bool) {
	return slices.BinarySearchFunc(t.seen, envelope.Seen{Stage: stage, Task: task}, bySource)
}

func (t *Table) entry(stage, task uint32) *envelope.Seen {
	i, ok := t.find(stage, task)
	if !ok {
		t.seen = slices.Insert(t.seen, i, envelope.Seen{Stage: stage, Task: task, Watermark: minTime})
	}
	return &t.seen[i]
}

// Commit returns the number of the producer's newest marker seen, 0 if none.
func (t *Table) Commit(stage, task uint32) uint64 {
	if i, ok := t.find(stage, task); ok {
		return t.seen[i].Commit
	}
	return 0
}

// Marker handles a producer's marker. fresh is false for a repeat, which must be ignored whole. A
// gap is an error (invariant 2), and so is a watermark that goes back.
func (t *Table) Marker(m *envelope.Marker) (fresh bool, err error) {
	if fresh, err = t.fresh(m); fresh {
		t.pass(&m)
	}
	return fresh, err
}

// fresh returns what Marker would, and changes nothing.
func (t *Table) fresh(m *envelope.Marker) (fresh bool, err error) {
	e := envelope.Seen{Watermark: minTime}
	if i, ok := t.find(m.Stage, m.Task); ok {
		e = t.seen[i]
	}
	switch {
	case m.Commit <= e.Commit:
		return false, nil
	case m.Commit != e.Commit+1:
		return false, &Gap{Stage: m.Stage, Task: m.Task, Commit: m.Commit, After: e.Commit}
	case m.Watermark < e.Watermark:
		return false, fmt.Errorf("producer %d/%d: marker %d has watermark %d, the one before had %d",
			m.Stage, m.Task, m.Commit, m.Watermark, e.Watermark)
	}
	return true, nil
}

// pass handles a fresh marker, if there is one, and sets it to nil.
func (t *Table) pass(fresh **envelope.Marker) {
	m := *fresh
	if m == nil {
		return
	}
	*fresh = nil
	e := t.entry(m.Stage, m.Task)
	e.Commit, e.Watermark, e.Idle, e.Ended, e.Drained, e.Left, e.Epoch = m.Commit, m.Watermark, m.Idle, m.Ended, m.Drained, m.Left, m.Epoch
	t.advance()
}

func (t *Table) advance() {
	if !t.Known() {
		return
	}
	low, open, idle := maxTime, false, false
	for i := range t.seen {
		switch e := &t.seen[i]; {
		case over(e):
		case e.Idle:
			idle = true
		default:
			low, open = min(low, e.Watermark), true
		}
	}
	// All producers that are not over are idle: event time does not advance, because any of them
	// may become active again.
	if !open && idle {
		return
	}
	t.watermark = max(t.watermark, low)
}

// Watermark returns the input watermark (invariant 4).
func (t *Table) Watermark() int64 { return t.watermark }

// Promises appends the watermarks of the producers of a stream, by their tasks: MaxTime for one that does not
// hold event time back, as it is idle or has ended. It appends nothing until all are registered.
func (t *Table) Promises(dst []int64, stream uint32) []int64 {
	if !t.known[stream] {
		return dst
	}
	stage := t.producer[stream]
	i, _ := t.find(stage, 0)
	for ; i < len(t.seen) && t.seen[i].Stage == stage; i++ {
		e := &t.seen[i]
		for uint32(len(dst)) < e.Task { // a task that was never registered
			dst = append(dst, maxTime)
		}
		w := e.Watermark
		if over(e) || e.Idle {
			w = maxTime
		}
		dst = append(dst, w)
	}
	return dst
}

// over reports whether a producer sends nothing more. Its watermark may say so first; its next
// marker, under aligned its next barrier, then says that it has ended.
func over(e *envelope.Seen) bool { return e.Ended || e.Watermark == maxTime }

// Idle reports whether all producers that are not over are idle.
func (t *Table) Idle() bool {
	idle := false
	for i := range t.seen {
		if e := &t.seen[i]; !over(e) {
			if !e.Idle {
				return false
			}
			idle = true
		}
	}
	return idle && t.Known()
}

// Ended reports whether every producer of every input has ended.
func (t *Table) Ended() bool {
	if !t.Known() {
		return false
	}
	for i := range t.seen {
		if !t.seen[i].Ended {
			return false
		}
	}
	return true
}

// Epoch returns the least routing epoch by which a producer sends that has not ended, the greatest there can be if all have:
// data of the epochs before it has been read. It is 0 until all are registered.
func (t *Table) Epoch() uint32 {
	if !t.Known() {
		return 0
	}
	least := ^uint32(0)
	for i := range t.seen {
		if e := &t.seen[i]; !e.Ended {
			least = min(least, e.Epoch)
		}
	}
	return least
}

// Drained reports whether all producers that have not ended have stopped for savepoint n. Another
// number is left from a savepoint that was aborted.
func (t *Table) Drained(n uint64) bool {
	if n == 0 || !t.Known() || t.Ended() {
		return false
	}
	for i := range t.seen {
		if e := &t.seen[i]; !e.Ended && e.Drained != n {
			return false
		}
	}
	return true
}

func (t *Table) clone() *Table {
	c := *t
	c.seen, c.known, c.plan = slices.Clone(t.seen), maps.Clone(t.known), maps.Clone(t.plan)
	return &c
}

// AppendSeen appends the table to a marker's Seen list.
func (t *Table) AppendSeen(dst []envelope.Seen) []envelope.Seen { return append(dst, t.seen...) }
