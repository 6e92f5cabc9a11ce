package progress

import (
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

type aligned struct{ early bool }

func (p aligned) Name() string {
	if p.early {
		return "aligned-early"
	}
	return "aligned"
}
func (aligned) Capabilities() Capabilities { return Capabilities{Together: true} }
func (aligned) NewChangeLog() ChangeLog    { return new(inParts) }

// Commit appends outputs followed by the marker: what flows between checkpoints.
func (aligned) Commit(outputs, _ []sharedlog.Record, m sharedlog.Record) [][]sharedlog.Record {
	return [][]sharedlog.Record{append(slices.Clone(outputs), m)}
}

func (p aligned) NewInbox(table *Table, position, low sharedlog.LSN) Inbox {
	return &atCheckpoint{table: table, early: p.early, place: place{position, low}, waiting: make(map[source][]uncovered)}
}

// NewAligner returns the inbox of a task that takes part in the checkpoints of an attempt of the job,
// which resumes behind a checkpoint (0: from the beginning). It shares the task's table.
func NewAligner(table *Table, attempt, checkpoint uint64) *Aligner {
	return &Aligner{table: table, attempt: attempt, made: checkpoint, barrier: make(map[source]uint64)}
}

// Aligner is the inbox of a task that takes part in checkpoints. A record counts where it is,
// unless its producer is ahead: its barrier of the next checkpoint has arrived, and those of others
// have not. Then the record waits until the task has emitted its own barrier.
type Aligner struct {
	table   *Table
	attempt uint64
	made    uint64 // the newest checkpoint whose barrier the task has emitted
	barrier map[source]uint64
	holding
	waiting []uncovered // in LSN order
	due     []Held
	read    sharedlog.LSN
}

// uncovered is a data record or, if marker is not nil, a marker.
type uncovered struct {
	Held
	instance uint64
	marker   *envelope.Marker
}

// keep returns a held marker.
func keep(lsn sharedlog.LSN, m *envelope.Marker) uncovered {
	return uncovered{Held{LSN: lsn}, m.Instance, &envelope.Marker{
		Stage: m.Stage, Task: m.Task, Instance: m.Instance, Commit: m.Commit, Watermark: m.Watermark, Idle: m.Idle, Ended: m.Ended, Checkpoint: m.Checkpoint,
	}}
}

// Data implements Inbox. Records of another attempt are void: those of them that count are in the
// restored state.
func (b *Aligner) Data(lsn sharedlog.LSN, h *envelope.Header, data []byte) (Take, error) {
	if h.Instance != b.attempt {
		return No, nil
	}
	if b.barrier[source{h.Stage, h.Task}] > b.made {
		b.waiting = append(b.waiting, uncovered{b.take(lsn, data), h.Instance, nil})
		return No, nil
	}
	if n := b.table.Commit(h.Stage, h.Task); h.Commit != n+1 {
		return No, &Gap{Stage: h.Stage, Task: h.Task, Commit: h.Commit, After: n, LSN: lsn}
	}
	return Now, nil
}

// Marker implements Inbox. It never returns held records; Pass does.
func (b *Aligner) Marker(lsn sharedlog.LSN, m *envelope.Marker) ([]Held, bool, error) {
	if m.Instance != b.attempt {
		return nil, false, nil
	}
	s := source{m.Stage, m.Task}
	ahead := b.barrier[s] > b.made
	if m.Checkpoint != 0 {
		if ahead || m.Checkpoint != b.made+1 {
			return nil, false, fmt.Errorf("producer %d/%d: barrier %d at LSN %d, but this task waits for barrier %d: two checkpoints were under way",
				m.Stage, m.Task, m.Checkpoint, lsn, b.made+1)
		}
		b.barrier[s] = m.Checkpoint
	}
	if ahead {
		b.waiting = append(b.waiting, keep(lsn, m))
		return nil, false, nil
	}
	fresh, err := b.table.Marker(m)
	return nil, fresh, err
}

// Complete implements Inbox. A task that takes part in checkpoints does not need it.
func (b *Aligner) Complete(sharedlog.LSN, *envelope.Checkpoint) ([]Held, error) { return nil, nil }

// Aligned returns the next checkpoint if the barriers of all producers have arrived, except for
// those that ended before it.
func (b *Aligner) Aligned() (checkpoint uint64, ok bool) {
	if !b.table.Known() {
		return 0, false
	}
	for _, e := range b.table.seen {
		switch there := b.barrier[source{e.Stage, e.Task}] > b.made; {
		case there:
			ok = true
		case !e.Ended:
			return 0, false
		}
	}
	return b.made + 1, ok
}

// Pass records that the task has emitted its barrier, and returns the data that waited for it, in
// LSN order; the table has the markers that waited. The slice is valid until the next call.
func (b *Aligner) Pass() ([]Held, error) {
	b.made++
	b.due = b.due[:0]
	for _, w := range b.waiting {
		if w.marker == nil {
			b.due = append(b.due, w.Held)
		} else if _, err := b.table.Marker(w.marker); err != nil {
			return nil, err
		}
	}
	clear(b.waiting)
	b.waiting, b.bytes = b.waiting[:0], 0
	return b.due, nil
}

// Done implements Inbox.
func (b *Aligner) Done(lsn sharedlog.LSN) { b.read = lsn + 1 }

// Position implements Inbox. It is for reports only: a restart begins at its attempt's place.
func (b *Aligner) Position() sharedlog.LSN { return b.read }

// Low implements Inbox.
func (b *Aligner) Low() sharedlog.LSN {
	if len(b.waiting) > 0 {
		return b.waiting[0].LSN
	}
	return b.read
}

// atCheckpoint is the inbox of outside readers: records and markers count at the record of the
// checkpoint that covers them, with early the data counts at once. It handles restarts as atMarker
// does.
type atCheckpoint struct {
	place
	holding
	table   *Table
	early   bool
	waiting map[source][]uncovered
	due     []Held
	after   *Table        // what the table becomes at Done, nil: unchanged
	from    sharedlog.LSN // of the oldest record that it depends on
}

func (b *atCheckpoint) Data(lsn sharedlog.LSN, h *envelope.Header, data []byte) (Take, error) {
	if b.early {
		if lsn < b.position { // it has counted
			return No, nil
		}
		b.at(lsn)
		return Now, nil
	}
	s := source{h.Stage, h.Task}
	b.waiting[s] = append(b.waiting[s], uncovered{b.take(lsn, data), h.Instance, nil})
	return No, nil
}

func (b *atCheckpoint) Marker(lsn sharedlog.LSN, m *envelope.Marker) ([]Held, bool, error) {
	s := source{m.Stage, m.Task}
	b.waiting[s] = append(b.waiting[s], keep(lsn, m))
	return nil, false, nil
}

// Complete takes from each producer what lies before its barrier, if it made one for this
// checkpoint, and drops the records of older attempts.
func (b *atCheckpoint) Complete(lsn sharedlog.LSN, c *envelope.Checkpoint) ([]Held, error) {
	b.due, b.after, b.from = b.due[:0], b.table.clone(), lsn
	for s, queue := range b.waiting {
		covered := 0
		for i, w := range queue {
			if w.marker != nil && w.instance == c.Attempt && w.marker.Checkpoint == c.Number {
				covered = i + 1
			}
		}
		kept := queue[:0]
		for i, w := range queue {
			switch {
			case w.instance > c.Attempt, w.instance == c.Attempt && i >= covered:
				kept = append(kept, w)
				continue
			case w.instance < c.Attempt: // void
			case w.marker != nil:
				if _, err := b.after.Marker(w.marker); err != nil {
					return nil, err
				}
				b.from = min(b.from, w.LSN)
			case lsn >= b.position: // or it has counted
				b.due = append(b.due, w.Held)
			}
			b.give(w.Held)
		}
		clear(queue[len(kept):])
		if len(kept) == 0 {
			delete(b.waiting, s)
		} else {
			b.waiting[s] = kept
		}
	}
	slices.SortFunc(b.due, func(x, y Held) int { return cmp.Compare(x.LSN, y.LSN) })
	b.at(lsn)
	return b.due, nil
}

func (b *atCheckpoint) Done(lsn sharedlog.LSN) {
	if b.after != nil {
		*b.table, b.after = *b.after, nil
	}
	clear(b.due)
	b.due = b.due[:0]
	b.done(lsn)
}

func (b *atCheckpoint) Position() sharedlog.LSN { return b.position }

func (b *atCheckpoint) Low() sharedlog.LSN {
	low := b.low()
	for _, q := range b.waiting { // each queue is in LSN order
		low = min(low, q[0].LSN)
	}
	if b.after != nil {
		low = min(low, b.from)
	}
	if len(b.due) > 0 {
		low = min(low, b.due[0].LSN)
	}
	return low
}
