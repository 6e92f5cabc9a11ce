package progress

import (
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// Inbox is the consumer's half of a protocol: it receives each data record and each marker of the
// input in LSN order and decides what counts now. A task has one.
//
// A task may commit while it processes what counts: the position is then the LSN of the record at
// which it counts, and the task's own count of items says how much of it is done. A restart
// receives the same records at the same place again.
type Inbox interface {
	// Data takes a data record (h is its header, data the whole record).
	Data(lsn sharedlog.LSN, h *envelope.Header, data []byte) (Take, error)
	// Marker takes a marker and returns the held records that count here, in LSN order. They count
	// before the marker's contents, which are in the table from Done on. fresh is false for a
	// marker that must be ignored whole. The slice, and m, are used until Done.
	Marker(lsn sharedlog.LSN, m *envelope.Marker) (held []Held, fresh bool, err error)
	// Complete takes the record of a complete checkpoint and returns the held records that count
	// here, in LSN order. They count before the watermarks that the checkpoint covers: the table
	// has those from Done on. The slice is used until then. Only a protocol whose tasks commit
	// together has such records.
	Complete(lsn sharedlog.LSN, c *envelope.Checkpoint) (held []Held, err error)
	// Done records that everything up to and including lsn has been processed.
	Done(lsn sharedlog.LSN)
	// Position is what a marker records: everything below it that counts has been processed. Low is
	// the LSN that a restart must read from.
	Position() sharedlog.LSN
	Low() sharedlog.LSN
	// Bytes is the size of the data that the inbox holds in memory, and Limit bounds it (0: no
	// limit): of records beyond it the inbox keeps only the LSN.
	Bytes() int
	Limit(bytes int)
}

// Take is what an inbox says of a data record that it receives.
type Take int

const (
	// No: the record does not count here. The inbox keeps a copy until the marker that covers it, or
	// drops it for ever.
	No Take = iota
	// Now: it counts here.
	Now
)

// Held is a data record that waited for its marker. Data is nil if there was no room for it; the
// log still has it.
type Held struct {
	LSN  sharedlog.LSN
	Data []byte
}

// independent is embedded in the inboxes of protocols whose tasks commit independently: they have no
// checkpoints.
type independent struct{ protocol string }

func (i independent) Complete(sharedlog.LSN, *envelope.Checkpoint) ([]Held, error) {
	return nil, fmt.Errorf("a checkpoint in a job whose tasks commit independently (%s)", i.protocol)
}

// holding accounts for the data of records that wait.
type holding struct{ bytes, limit int }

// take returns what is kept of a record.
func (h *holding) take(lsn sharedlog.LSN, data []byte) Held {
	if h.limit > 0 && h.bytes+len(data) > h.limit {
		return Held{LSN: lsn}
	}
	h.bytes += len(data)
	return Held{lsn, append([]byte(nil), data...)}
}

// give releases a record that is no longer held.
func (h *holding) give(of Held)    { h.bytes -= len(of.Data) }
func (h *holding) Bytes() int      { return h.bytes }
func (h *holding) Limit(bytes int) { h.limit = bytes }

// place is the position of an inbox.
type place struct {
	position sharedlog.LSN
	// read is the LSN behind the newest record seen by this instance. After a restart it is below
	// the position for a while, and records that wait there are not in memory yet.
	read sharedlog.LSN
}

// at records that what counts at a record is being processed.
func (p *place) at(lsn sharedlog.LSN) { p.position = max(p.position, lsn) }

func (p *place) done(lsn sharedlog.LSN) {
	p.read = lsn + 1
	p.position = max(p.position, p.read)
}

func (p *place) low() sharedlog.LSN { return min(p.position, p.read) }

// atOnce is the inbox of a protocol under which all records count where they are, whichever
// instance appended them. It holds nothing.
type atOnce struct {
	independent
	place
	holding // nothing
	table   *Table
	passing *envelope.Marker
}

func (b *atOnce) Data(lsn sharedlog.LSN, _ *envelope.Header, _ []byte) (Take, error) {
	b.at(lsn)
	return Now, nil
}

func (b *atOnce) Marker(_ sharedlog.LSN, m *envelope.Marker) ([]Held, bool, error) {
	fresh, err := b.table.fresh(m)
	if fresh {
		b.passing = m
	}
	return nil, fresh, err
}

func (b *atOnce) Done(lsn sharedlog.LSN) {
	b.table.pass(&b.passing)
	b.done(lsn)
}
func (b *atOnce) Position() sharedlog.LSN { return b.position }
func (b *atOnce) Low() sharedlog.LSN      { return b.low() }

// atMarker is the inbox of `marker` and of `fused` (see the package comment). With parts, a record
// waits for its marker only if it is a part of its commit; the others count where they are, and
// must belong to their producer's next commit.
type atMarker struct {
	independent
	place
	holding
	parts   bool
	table   *Table
	waiting map[source][]waiting
	due     []Held
	passing *envelope.Marker
}

type source struct{ stage, task uint32 }

type waiting struct {
	instance, commit uint64
	Held
}

func (b *atMarker) Data(lsn sharedlog.LSN, h *envelope.Header, data []byte) (Take, error) {
	if b.parts && !h.Part {
		return b.whole(lsn, h)
	}
	// Below the position this is a record that was still waiting when the predecessor committed, or
	// one that counted before: its marker distinguishes the two.
	s := source{h.Stage, h.Task}
	b.waiting[s] = append(b.waiting[s], waiting{h.Instance, h.Commit, b.take(lsn, data)})
	return No, nil
}

func (b *atMarker) whole(lsn sharedlog.LSN, h *envelope.Header) (Take, error) {
	if lsn < b.position {
		return No, nil // it has counted; the reader is below the position for the sake of other records
	}
	switch n := b.table.Commit(h.Stage, h.Task); {
	case h.Commit <= n:
		return No, nil
	case h.Commit != n+1:
		return No, &Gap{Stage: h.Stage, Task: h.Task, Commit: h.Commit, After: n, LSN: lsn}
	}
	b.at(lsn)
	return Now, nil
}

func (b *atMarker) Marker(lsn sharedlog.LSN, m *envelope.Marker) ([]Held, bool, error) {
	// Below the position the table has every marker already: not fresh.
	fresh, err := b.table.fresh(m)
	if err != nil {
		return nil, false, err
	}
	if fresh {
		b.passing = m
	}
	b.at(lsn)
	b.due = b.due[:0]
	s := source{m.Stage, m.Task}
	queue := b.waiting[s]
	kept := queue[:0]
	for _, w := range queue {
		switch {
		case w.instance > m.Instance, w.instance == m.Instance && w.commit > m.Commit:
			kept = append(kept, w) // of a later commit, which has not come
			continue
		case fresh && w.instance == m.Instance && w.commit == m.Commit:
			b.due = append(b.due, w.Held)
		}
		// Everything else never counts (again): it counted before the position, or a dead instance
		// left it (invariant 3).
		b.give(w.Held)
	}
	clear(queue[len(kept):])
	if len(kept) == 0 {
		delete(b.waiting, s)
	} else {
		b.waiting[s] = kept
	}
	return b.due, fresh, nil
}

// Holds reports whether records of a task wait for one of its markers.
func (b *atMarker) Holds(stage, task uint32) bool { return len(b.waiting[source{stage, task}]) > 0 }

func (b *atMarker) Done(lsn sharedlog.LSN) {
	b.table.pass(&b.passing)
	clear(b.due)
	b.due = b.due[:0]
	b.done(lsn)
}

func (b *atMarker) Position() sharedlog.LSN { return b.position }

func (b *atMarker) Low() sharedlog.LSN {
	low := b.low()
	for _, q := range b.waiting { // each queue is in LSN order
		low = min(low, q[0].LSN)
	}
	if len(b.due) > 0 {
		low = min(low, b.due[0].LSN)
	}
	return low
}
