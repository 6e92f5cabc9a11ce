package progress

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

type txn struct{}

func (txn) Name() string { return "txn" }
func (txn) Capabilities() Capabilities {
	return Capabilities{Flushes: true, KeepsChanges: true, Coordinator: true}
}

// Commit: the last group is the marker alone, which the coordinator appends.
func (txn) Commit(outputs, changes []sharedlog.Record, m sharedlog.Record) [][]sharedlog.Record {
	var groups [][]sharedlog.Record
	for _, g := range [][]sharedlog.Record{outputs, changes} {
		if len(g) > 0 {
			groups = append(groups, g)
		}
	}
	return append(groups, []sharedlog.Record{m})
}

func (txn) NewInbox(table *Table, position, low sharedlog.LSN) Inbox {
	return &atCommit{independent: independent{"txn"}, table: table, place: place{position, low}, waiting: make(map[source][]ofPart)}
}

func (txn) NewChangeLog() ChangeLog { return new(committed) }

// ChangeLog is the reader's half of a protocol for a task's change logs: it receives each record in
// LSN order and decides what counts.
type ChangeLog interface {
	// Take takes a record and returns the change records that count now, in LSN order.
	// The slice is valid until the next call.
	Take(e *sharedlog.Entry) ([]sharedlog.Entry, error)
	// Low is the LSN of the oldest record that waits, the highest LSN if none does: a restart that
	// reads from there misses nothing.
	Low() sharedlog.LSN
}

const noLSN = ^sharedlog.LSN(0)

// inParts is the change log of protocols whose changes share their marker's group: they count where
// they are. Changes that do not fit the group precede it, in parts, and count with the record that
// shares the group. Key groups that have moved have records of several tasks.
type inParts struct {
	waiting map[uint32]*parts // by task
	due     []sharedlog.Entry
}

// parts are those of one commit of a task.
type parts struct {
	instance, commit uint64
	entries          []sharedlog.Entry
}

func (p *inParts) Take(e *sharedlog.Entry) ([]sharedlog.Entry, error) {
	h, part, err := envelope.PartOf(e.Data)
	if err != nil {
		return nil, err
	}
	p.due = p.due[:0]
	w := p.waiting[h.Task]
	if w != nil && (h.Instance != w.instance || h.Commit != w.commit) {
		delete(p.waiting, h.Task) // their commit was never completed
		w = nil
	}
	if !part {
		if w != nil {
			p.due = append(p.due, w.entries...)
			delete(p.waiting, h.Task)
		}
		p.due = append(p.due, *e)
		return p.due, nil
	}
	if w == nil {
		if p.waiting == nil {
			p.waiting = map[uint32]*parts{}
		}
		w = &parts{instance: h.Instance, commit: h.Commit}
		p.waiting[h.Task] = w
	}
	w.entries = append(w.entries, sharedlog.Entry{LSN: e.LSN, Record: sharedlog.Record{Data: slices.Clone(e.Data)}})
	return nil, nil
}

func (p *inParts) Low() sharedlog.LSN {
	low := noLSN
	for _, w := range p.waiting {
		low = min(low, w.entries[0].LSN)
	}
	return low
}

// committed is the change log of txn: changes precede their commit, and count when their commit
// record comes. The changes of at most one transaction wait, because one task writes them and
// begins the next transaction when the previous one is done.
type committed struct {
	instance, commit uint64
	waiting, due     []sharedlog.Entry
}

func (c *committed) Take(e *sharedlog.Entry) ([]sharedlog.Entry, error) {
	c.due = c.due[:0]
	kind, err := envelope.KindOf(e.Data)
	if err != nil {
		return nil, err
	}
	if kind == envelope.KindMarker {
		var m envelope.Marker
		if err := m.Parse(e.Data); err != nil {
			return nil, err
		}
		if m.Instance == c.instance && m.Commit == c.commit {
			c.due = append(c.due, c.waiting...)
		}
		// What does not count now never does: its instance is over. (Or this commit record is a
		// repeat, and nothing waits.)
		c.waiting = c.waiting[:0]
		return c.due, nil
	}
	var s envelope.Sections
	h, err := s.Open(e.Data)
	if err != nil {
		return nil, err
	}
	if h.Instance != c.instance || h.Commit != c.commit {
		c.instance, c.commit, c.waiting = h.Instance, h.Commit, c.waiting[:0]
	}
	c.waiting = append(c.waiting, sharedlog.Entry{LSN: e.LSN, Record: sharedlog.Record{Data: slices.Clone(e.Data)}})
	return nil, nil
}

func (c *committed) Low() sharedlog.LSN {
	if len(c.waiting) == 0 {
		return noLSN
	}
	return c.waiting[0].LSN
}

// atCommit is the inbox of txn: a record counts at the commit record of its partition, in the order
// of commit records. The marker, which follows all commit records of its transaction, carries time.
type atCommit struct {
	independent
	place
	holding
	table   *Table
	waiting map[source][]ofPart
	due     []Held
	passing *envelope.Marker
}

// ofPart is a record that waits. A producer puts only what one task consumes into one record, and
// commits the same part: any of its key groups identifies the part.
type ofPart struct {
	stream uint32
	group  int
	waiting
}

func (b *atCommit) Data(lsn sharedlog.LSN, h *envelope.Header, data []byte) (Take, error) {
	var s envelope.Sections
	if _, err := s.Open(data); err != nil {
		return No, err
	}
	sec, ok := s.Next()
	if !ok {
		return No, s.Err() // nothing in it
	}
	from := source{h.Stage, h.Task}
	w := waiting{h.Instance, h.Commit, b.take(lsn, data)}
	b.waiting[from] = append(b.waiting[from], ofPart{h.Stream, sec.Group, w})
	return No, nil
}

func (b *atCommit) Marker(lsn sharedlog.LSN, m *envelope.Marker) ([]Held, bool, error) {
	b.due = b.due[:0]
	again := lsn < b.position
	b.at(lsn)
	if m.Part.Of != envelope.PartNone {
		b.release(m, func(w *ofPart) bool {
			if w.stream != m.Part.Stream {
				return false
			}
			if _, in := slices.BinarySearch(m.Part.Groups, w.group); !in {
				return false
			}
			if w.instance > m.Instance || w.instance == m.Instance && w.commit > m.Commit {
				return false
			}
			// Below the position it counted before; that of a lower instance never counts.
			if !again && w.instance == m.Instance && w.commit == m.Commit {
				b.due = append(b.due, w.Held)
			}
			return true
		})
		return b.due, false, nil
	}
	fresh, err := b.table.fresh(m)
	if err != nil {
		return nil, false, err
	}
	if fresh {
		b.passing = m
	}
	// An instance that is over never commits the rest (pitfall T1).
	missed := noLSN
	b.release(m, func(w *ofPart) bool {
		if w.instance == m.Instance && w.commit <= m.Commit {
			missed = min(missed, w.LSN)
		}
		return w.instance < m.Instance || w.instance == m.Instance && w.commit <= m.Commit
	})
	if fresh && missed != noLSN {
		return nil, false, fmt.Errorf("producer %d/%d: marker %d stands at LSN %d, and no commit record was seen for the record at LSN %d: commits are missing from the log",
			m.Stage, m.Task, m.Commit, lsn, missed)
	}
	return nil, fresh, nil
}

// release removes those of a producer's waiting records for which over returns true.
func (b *atCommit) release(m *envelope.Marker, over func(*ofPart) bool) {
	s := source{m.Stage, m.Task}
	queue := b.waiting[s]
	kept := queue[:0]
	for _, w := range queue {
		if over(&w) {
			b.give(w.Held)
			continue
		}
		kept = append(kept, w)
	}
	clear(queue[len(kept):])
	if b.waiting[s] = kept; len(kept) == 0 {
		delete(b.waiting, s)
	}
}

func (b *atCommit) Done(lsn sharedlog.LSN) {
	b.table.pass(&b.passing)
	clear(b.due)
	b.due = b.due[:0]
	b.done(lsn)
}
func (b *atCommit) Position() sharedlog.LSN { return b.position }
func (b *atCommit) Low() sharedlog.LSN {
	low := b.low()
	for _, q := range b.waiting { // each queue is in LSN order
		low = min(low, q[0].LSN)
	}
	if len(b.due) > 0 {
		low = min(low, b.due[0].LSN)
	}
	return low
}
