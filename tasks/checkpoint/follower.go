package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
)

// Follower compacts the change logs of one task's key groups into a store. Only one goroutine may
// use it, which calls Step often, and Write once an interval or when Held has grown.
//
// A key that is inserted (envelope.ItemInsert) and deleted between two writes never reaches the
// store: neither its value nor its deletion is written. That requires
//
// Invariant: a key that was absent before a record at or above sure, and of which no change is
// folded, is not in the store.
//
//   - What earlier writers have written was below sure, which is the log's tail when the
//     store had accepted this follower and refused them. That includes the part of an
//     unfinished Write, which is ahead of the position. (Waiting for this follower's first
//     write instead would not do: it may end below what is there already.)
//   - What this follower has written was folded until a write succeeded. Afterwards the
//     store holds what existed at its position; if one of those keys is absent later, a
//     deletion lies in between, which is folded.
//   - A write that fails may have written any part of what was folded, which is then no
//     longer known to be absent (fold.markUnsure).
//   - A store that has lost writes is at an earlier position, and refuses the next write
//     (ErrMoved); its next follower starts like any other.
type Follower struct {
	log     sharedlog.Log
	store   Store
	token   sharedlog.LSN
	sources []Source
	byGroup map[int]int // key group → index in sources
	changes ChangeLog

	reader  sharedlog.Reader
	waiting sharedlog.Batch // read, and not durable yet
	in      envelope.Sections
	folds   []fold
	entries []Entry
	key     []byte
	turns   yielder
	step    func(observe.Step) // called at each step of a snapshot

	// sure: no other writer has written a key that was inserted here or above.
	sure  sharedlog.LSN
	taken bool // something was taken since the last write
	// read: everything below it is folded; written: everything below it is in the store, by source.
	read    sharedlog.LSN
	written []sharedlog.LSN
	stats   FollowerStats
}

// Source is a key group with its change log.
type Source struct {
	Group Group
	Tag   sharedlog.Tag
}

// ChangeLog says which records of change logs count: some protocols append changes before they are
// committed, and some of those are never committed (package progress has the implementations).
type ChangeLog interface {
	// Take takes the next record and returns the change records that count now.
	Take(e *sharedlog.Entry) ([]sharedlog.Entry, error)
	// Low is the LSN of the oldest record that waits; the highest LSN if none does.
	Low() sharedlog.LSN
}

// FollowerStats count the work of a Follower.
type FollowerStats struct {
	Entries uint64 // changes read from the change log
	Written uint64 // those written to the store: the newest of their keys
}

// Follow returns a follower that continues at the store's positions. token is the place in the log
// at which the groups' task became this instance: no other writer may use it.
func Follow(ctx context.Context, log sharedlog.Log, store Store, token sharedlog.LSN, sources []Source, changes ChangeLog) (*Follower, error) {
	f := &Follower{
		log: log, store: store, token: token, sources: sources, changes: changes, byGroup: map[int]int{},
		folds: make([]fold, len(sources)), written: make([]sharedlog.LSN, len(sources)), step: func(observe.Step) {},
	}
	o := sharedlog.ReaderOptions{From: ^sharedlog.LSN(0), BelowFloor: true}
	for i, s := range sources {
		f.byGroup[s.Group.Group] = i
		at, err := store.Begin(ctx, s.Group, token)
		if err != nil {
			return nil, err
		}
		f.written[i] = at
		o.From = min(o.From, max(at, sharedlog.First))
		o.Tags = append(o.Tags, s.Tag)
	}
	f.read = o.From
	var err error
	if f.sure, err = log.Tail(ctx); err != nil {
		return nil, err
	}
	f.reader, err = log.NewReader(o)
	return f, err
}

// Observe makes the follower call reached at each step of a snapshot, and at once for the first one:
// the store knows its writer.
func (f *Follower) Observe(reached func(observe.Step)) {
	f.step = reached
	reached(observe.SnapshotBegun)
}

// Close closes the reader.
func (f *Follower) Close() error { return f.reader.Close() }

// At returns the position up to which the store has all groups.
func (f *Follower) At() sharedlog.LSN {
	at := f.written[0]
	for _, w := range f.written[1:] {
		at = min(at, w)
	}
	return at
}

// Held returns the bytes held for the next write, and whether there is anything to write: if all
// that was changed is gone again, only the position.
func (f *Follower) Held() (n int, any bool) {
	for i := range f.folds {
		n += f.folds[i].size()
	}
	return n, f.taken
}

// Stats returns counters.
func (f *Follower) Stats() FollowerStats { return f.stats }

// stepBytes is the most that a Step takes, so that its caller can do other work.
const stepBytes = 4 << 20

// Step takes what has become committed and durable since the last call. It does not wait; more
// reports that there is more to take. After an error the caller closes the follower and makes a new
// one.
func (f *Follower) Step() (more bool, err error) {
	durable := f.log.Stats().Durable
	for taken := 0; taken < stepBytes; {
		if len(f.waiting.Entries) == 0 {
			if f.waiting, err = f.reader.TryNext(); err != nil {
				return false, fmt.Errorf("read the change log: %w", err)
			}
			if len(f.waiting.Entries) == 0 {
				f.reached(durable)
				return false, nil
			}
		}
		es := f.waiting.Entries
		if es[len(es)-1].LSN >= durable {
			return false, nil // the batch stays valid until the next call of the reader
		}
		for i := range es {
			due, err := f.changes.Take(&es[i])
			for k := range due {
				if err == nil {
					err = f.take(&due[k])
				}
			}
			if err != nil {
				return false, fmt.Errorf("change record at LSN %d: %w", es[i].LSN, err)
			}
			taken += len(es[i].Data)
			f.turns.work(len(es[i].Data), followTurn)
		}
		f.reached(durable)
		f.waiting = sharedlog.Batch{}
	}
	return true, nil
}

// reached moves the position: records that wait for their commit are above it.
func (f *Follower) reached(durable sharedlog.LSN) {
	f.read = max(f.read, min(f.waiting.Frontier, durable, f.changes.Low()))
}

// take folds one change record.
func (f *Follower) take(e *sharedlog.Entry) error {
	if _, err := f.in.Open(e.Data); err != nil {
		return err
	}
	for {
		s, ok := f.in.Next()
		if !ok {
			return f.in.Err()
		}
		at, ours := f.byGroup[s.Group]
		if !ours || e.LSN < f.written[at] {
			continue
		}
		for b := s.Data; len(b) > 0; {
			it, rest, err := envelope.NextItem(b)
			if err != nil {
				return fmt.Errorf("key group %d: %w", s.Group, err)
			}
			if len(f.folds[at].arena)+len(b) > foldMax {
				return fmt.Errorf("key group %d: more than %d bytes of changes are waiting for the checkpoint store", s.Group, foldMax)
			}
			f.key = it.AppendKey(f.key[:0])
			f.folds[at].change(f.key, it.Value, it.Op, it.Op == envelope.ItemInsert && e.LSN >= f.sure)
			f.stats.Entries++
			f.taken = true
			b = rest
		}
	}
}

// Write makes a snapshot of what was taken so far and returns its position. Errors are the store's:
// ErrMoved and ErrFenced require a new follower; after others the caller can call Write again.
func (f *Follower) Write(ctx context.Context) (sharedlog.LSN, error) {
	f.entries = f.entries[:0]
	bounds := make([]int, 0, len(f.folds)+1)
	for i := range f.folds {
		bounds = append(bounds, len(f.entries))
		f.entries = f.folds[i].entries(f.entries)
	}
	bounds = append(bounds, len(f.entries))
	var ws []Write
	for i, s := range f.sources {
		if f.read > f.written[i] {
			ws = append(ws, Write{Group: s.Group, Token: f.token, From: f.written[i], To: f.read, Entries: f.entries[bounds[i]:bounds[i+1]]})
		}
	}
	if len(ws) == 0 {
		return f.read, nil
	}
	f.step(observe.SnapshotRead)
	if err := f.store.Write(ctx, ws); err != nil {
		for i := range f.folds {
			f.folds[i].markUnsure()
		}
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
		return 0, err
	}
	f.step(observe.SnapshotWritten)
	for i := range f.folds {
		f.folds[i].reset()
		f.written[i] = max(f.written[i], f.read)
	}
	f.taken = false
	f.stats.Written += uint64(len(f.entries))
	return f.read, nil
}
