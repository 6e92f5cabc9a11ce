package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
)

// Follower compacts the change logs of one task's key groups into a store. Only one goroutine may
// use it, which calls Step often, and Write once an interval or when Held has grown. Add and Drop
// change the groups in between: the others continue where they are.
//
// A key that is inserted (envelope.ItemInsert) and deleted between two writes never reaches the
// store: neither its value nor its deletion is written. That requires
//
// Invariant: a key that was absent before a record at or above its group's sure, and of which no
// change is folded, is not in the store.
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
	changes func() ChangeLog

	// main reads the groups that are followed together. joining have another position, in rising
	// order; late reads the first of them until it is where main is, and the two become one. A
	// reader of all from the lowest position would not do: the change logs of groups that come from
	// different tasks are trimmed to different positions.
	main    reading
	late    *reading
	joining []*followed

	in      envelope.Sections
	entries []Entry
	key     []byte
	turns   yielder
	step    func(observe.Step) // called at each step of a snapshot
	taken   bool               // something was taken, or a group was added, since the last write
	stats   FollowerStats
}

// Source is a key group with its change log.
type Source struct {
	Group Group
	Tag   sharedlog.Tag
	// Token is the place in the log at which the group's task became its only writer: no other
	// writer may use it. It must be durable (Durable).
	Token sharedlog.LSN
}

// followed is a key group of a follower.
type followed struct {
	Source
	fold fold
	// sure: no other writer has written a key that was inserted here or above. written: everything
	// below it is in the store.
	sure, written sharedlog.LSN
}

// reading is a reader of the change logs of some groups.
type reading struct {
	groups  []*followed // by number
	changes ChangeLog
	reader  sharedlog.Reader // nil: one has to be opened, at next
	waiting sharedlog.Batch  // read, and not durable yet
	// next: everything below it was passed to changes; read: everything below it is folded.
	next, read sharedlog.LSN
}

// ChangeLog says which records of change logs count: some protocols append changes before they are
// committed, and some of those are never committed (package progress has the implementations).
type ChangeLog interface {
	// Take takes the next record and returns the change records that count now.
	Take(e *sharedlog.Entry) ([]sharedlog.Entry, error)
	// Low is the LSN of the oldest record that waits; the highest LSN if none does.
	Low() sharedlog.LSN
}

// noneWaits is ChangeLog.Low if no record waits.
const noneWaits = ^sharedlog.LSN(0)

// FollowerStats count the work of a Follower.
type FollowerStats struct {
	Entries uint64 // changes read from the change log
	Written uint64 // those written to the store: the newest of their keys
}

// FencedError says which key groups have a newer writer; errors.Is(err, ErrFenced) holds.
type FencedError struct{ Groups []Group }

func (e *FencedError) Error() string {
	names := make([]string, len(e.Groups))
	for i, g := range e.Groups {
		names[i] = g.String()
	}
	return fmt.Sprintf("%s: %v", strings.Join(names, ", "), ErrFenced)
}

// Unwrap returns ErrFenced.
func (e *FencedError) Unwrap() error { return ErrFenced }

// Follow returns a follower that continues at the store's positions; changes makes a ChangeLog. It
// fails with a FencedError that names all groups of newer writers, if there are any.
func Follow(ctx context.Context, log sharedlog.Log, store Store, sources []Source, changes func() ChangeLog) (*Follower, error) {
	f := &Follower{log: log, store: store, changes: changes, main: reading{changes: changes()}, step: func(observe.Step) {}}
	var fenced []Group
	for _, s := range sources {
		switch g, err := f.begin(ctx, s); {
		case errors.Is(err, ErrFenced):
			fenced = append(fenced, s.Group)
		case err != nil:
			return nil, err
		default:
			f.joining = append(f.joining, g)
		}
	}
	if len(fenced) > 0 {
		return nil, &FencedError{fenced}
	}
	sure, err := log.Tail(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range f.joining {
		g.sure = sure
	}
	f.sortJoining()
	f.join()
	return f, f.main.open(log)
}

// begin makes the follower the writer of a group.
func (f *Follower) begin(ctx context.Context, s Source) (*followed, error) {
	at, err := f.store.Begin(ctx, s.Group, s.Token)
	return &followed{Source: s, written: at}, err
}

// sortJoining sorts joining by position; those of one position stay in their order.
func (f *Follower) sortJoining() {
	slices.SortStableFunc(f.joining, func(a, b *followed) int { return cmp.Compare(a.written, b.written) })
}

// Add adds a key group, which the follower does not have, at the store's position. It fails with a
// FencedError, and changes nothing, if the group has a newer writer.
func (f *Follower) Add(ctx context.Context, s Source) error {
	g, err := f.begin(ctx, s)
	if errors.Is(err, ErrFenced) {
		return &FencedError{[]Group{s.Group}}
	}
	if err != nil {
		return err
	}
	if g.sure, err = f.log.Tail(ctx); err != nil {
		return err
	}
	f.joining = append(f.joining, g)
	f.sortJoining()
	f.taken = true
	return nil
}

// Drop removes a key group, if the follower has it. What is not written yet of its changes is not
// written by this follower.
func (f *Follower) Drop(group int) error {
	is := func(g *followed) bool { return g.Group.Group == group }
	f.joining = slices.DeleteFunc(f.joining, is)
	if f.late != nil && slices.ContainsFunc(f.late.groups, is) {
		if f.late.groups = slices.DeleteFunc(f.late.groups, is); len(f.late.groups) == 0 {
			late := f.late
			f.late = nil
			return late.close()
		}
	}
	if !slices.ContainsFunc(f.main.groups, is) {
		return nil
	}
	f.main.groups = slices.DeleteFunc(f.main.groups, is)
	return f.main.close() // the next one is opened without its tag
}

// Observe makes the follower call reached at each step of a snapshot, and at once for the first one:
// the store knows its writer.
func (f *Follower) Observe(reached func(observe.Step)) {
	f.step = reached
	reached(observe.SnapshotBegun)
}

// Close closes the readers.
func (f *Follower) Close() error {
	if f.late != nil {
		return errors.Join(f.main.close(), f.late.close())
	}
	return f.main.close()
}

// all returns all groups.
func (f *Follower) all() []*followed {
	all := append(slices.Clone(f.main.groups), f.joining...)
	if f.late != nil {
		all = append(all, f.late.groups...)
	}
	return all
}

// At returns the position up to which the store has all groups; without groups, the position that
// the follower has reached.
func (f *Follower) At() sharedlog.LSN {
	all := f.all()
	if len(all) == 0 {
		return f.main.read
	}
	at := all[0].written
	for _, g := range all[1:] {
		at = min(at, g.written)
	}
	return at
}

// Held returns the bytes held for the next write, and whether there is anything to write: if all
// that was changed is gone again, only the position.
func (f *Follower) Held() (n int, any bool) {
	for _, g := range f.all() {
		n += g.fold.size()
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
	for f.join() {
		if f.late.next < f.main.next {
			if more, err = f.take(f.late, f.main.next); err != nil || more {
				return more, err
			}
		}
		if f.late.next != f.main.next || f.late.changes.Low() != noneWaits {
			break // main continues first
		}
		late := f.late
		f.late = nil
		f.main.add(late.groups)
		if err := errors.Join(f.main.close(), late.close()); err != nil {
			return false, err
		}
	}
	return f.take(&f.main, f.log.Stats().Durable)
}

// join makes the next of joining the late ones, or the first of all the main ones. It reports
// whether there are late ones.
func (f *Follower) join() bool {
	if f.late != nil || len(f.joining) == 0 {
		return f.late != nil
	}
	n, at := 1, f.joining[0].written
	for n < len(f.joining) && f.joining[n].written == at {
		n++
	}
	at = max(at, sharedlog.First)
	r := reading{changes: f.changes(), next: at, read: at}
	r.add(f.joining[:n])
	f.joining = slices.Delete(f.joining, 0, n)
	if len(f.main.groups) > 0 {
		f.late = &r
		return true
	}
	f.main = r
	return f.join()
}

// add adds groups; the reader must be opened anew.
func (r *reading) add(gs []*followed) {
	r.groups = append(r.groups, gs...)
	slices.SortFunc(r.groups, func(a, b *followed) int { return cmp.Compare(a.Group.Group, b.Group.Group) })
}

// open opens a reader, if there is none and there is something to read.
func (r *reading) open(log sharedlog.Log) (err error) {
	if r.reader != nil || len(r.groups) == 0 {
		return nil
	}
	o := sharedlog.ReaderOptions{From: r.next, BelowFloor: true}
	for _, g := range r.groups {
		o.Tags = append(o.Tags, g.Tag)
	}
	r.reader, err = log.NewReader(o)
	return err
}

func (r *reading) close() error {
	if r.reader == nil {
		return nil
	}
	err := r.reader.Close()
	r.reader, r.waiting = nil, sharedlog.Batch{}
	return err
}

// take takes what lies below an LSN; more reports that there is more. Of a batch of the main reader
// it takes all or nothing.
func (f *Follower) take(r *reading, below sharedlog.LSN) (more bool, err error) {
	if err := r.open(f.log); err != nil || r.reader == nil {
		return false, err
	}
	for taken := 0; taken < stepBytes; {
		if len(r.waiting.Entries) == 0 {
			if r.waiting, err = r.reader.TryNext(); err != nil {
				return false, fmt.Errorf("read the change log: %w", err)
			}
			if len(r.waiting.Entries) == 0 {
				r.reached(below)
				return false, nil
			}
		}
		es := r.waiting.Entries
		n, _ := slices.BinarySearchFunc(es, below, func(e sharedlog.Entry, below sharedlog.LSN) int { return cmp.Compare(e.LSN, below) })
		if n < len(es) && (n == 0 || r == &f.main) {
			if r != &f.main {
				r.reached(below)
			}
			return false, nil // the batch stays valid until the next call of the reader
		}
		for i := range es[:n] {
			due, err := r.changes.Take(&es[i])
			for k := range due {
				if err == nil {
					err = f.fold(r, &due[k])
				}
			}
			if err != nil {
				return false, fmt.Errorf("change record at LSN %d: %w", es[i].LSN, err)
			}
			taken += len(es[i].Data)
			f.turns.work(len(es[i].Data), followTurn)
		}
		if r.waiting.Entries = es[n:]; n == len(es) {
			r.reached(below)
			r.waiting = sharedlog.Batch{}
		}
	}
	return true, nil
}

// reached moves the position: what lies below an LSN was taken, as far as it was read. Records that
// wait for their commit are above it.
func (r *reading) reached(below sharedlog.LSN) {
	r.next = max(r.next, min(r.waiting.Frontier, below))
	r.read = max(r.read, min(r.next, r.changes.Low()))
}

// group returns the group of a number, nil if r does not read it.
func (r *reading) group(n int) *followed {
	i, found := slices.BinarySearchFunc(r.groups, n, func(g *followed, n int) int { return cmp.Compare(g.Group.Group, n) })
	if !found {
		return nil
	}
	return r.groups[i]
}

// fold folds one change record.
func (f *Follower) fold(r *reading, e *sharedlog.Entry) error {
	if _, err := f.in.Open(e.Data); err != nil {
		return err
	}
	for {
		s, ok := f.in.Next()
		if !ok {
			return f.in.Err()
		}
		g := r.group(s.Group)
		if g == nil || e.LSN < g.written {
			continue
		}
		for b := s.Data; len(b) > 0; {
			it, rest, err := envelope.NextItem(b)
			if err != nil {
				return fmt.Errorf("key group %d: %w", s.Group, err)
			}
			if len(g.fold.arena)+len(b) > foldMax {
				return fmt.Errorf("key group %d: more than %d bytes of changes are waiting for the checkpoint store", s.Group, foldMax)
			}
			f.key = it.AppendKey(f.key[:0])
			g.fold.change(f.key, it.Value, it.Op, it.Op == envelope.ItemInsert && e.LSN >= g.sure)
			f.stats.Entries++
			f.taken = true
			b = rest
		}
	}
}

// Write makes a snapshot of what was taken so far and returns At, which is durable. The store is
// written to even if no group has moved: the position at which it was found need not be durable
// before. If some groups have a newer writer, Write writes the others, drops these, and returns At
// with a FencedError. Other errors are the store's: ErrMoved requires a new follower; after others the
// caller can call Write again.
func (f *Follower) Write(ctx context.Context) (sharedlog.LSN, error) {
	all := f.all()
	ws, to := f.writes(all)
	f.step(observe.SnapshotRead)
	fenced, err := f.write(ctx, ws)
	if err != nil {
		for _, g := range all {
			g.fold.markUnsure()
		}
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
		return 0, err
	}
	f.step(observe.SnapshotWritten)
	f.taken = f.taken && len(ws) == 0
	for i, g := range all {
		if to[i] > g.written {
			g.fold.reset()
			g.written = to[i]
		}
		f.taken = f.taken || g.fold.held > 0
	}
	f.stats.Written += uint64(len(f.entries))
	if len(fenced) == 0 {
		return f.At(), nil
	}
	for _, g := range fenced {
		err = errors.Join(err, f.Drop(g.Group))
	}
	return f.At(), errors.Join(&FencedError{fenced}, err)
}

// writes returns what has to be written of groups, and the position that each group has then. A group
// whose position does not rise keeps what is folded.
func (f *Follower) writes(all []*followed) (ws []Write, to []sharedlog.LSN) {
	f.entries = f.entries[:0]
	var bounds []int
	for _, g := range all {
		read := f.main.read
		switch {
		case slices.Contains(f.joining, g):
			read = g.written
		case f.late != nil && slices.Contains(f.late.groups, g):
			read = f.late.read
		}
		if to = append(to, read); read > g.written {
			bounds = append(bounds, len(f.entries))
			f.entries = g.fold.entries(f.entries)
			ws = append(ws, Write{Group: g.Group, Token: g.Token, From: g.written, To: read})
		}
	}
	bounds = append(bounds, len(f.entries))
	for i := range ws {
		ws[i].Entries = f.entries[bounds[i]:bounds[i+1]]
	}
	return ws, to
}

// write writes ws except for the groups that have a newer writer, which it returns. The store stops
// at the first of those, so it is asked which it has written; these are written once more, without
// entries, because they may not be durable yet.
func (f *Follower) write(ctx context.Context, ws []Write) (fenced []Group, err error) {
	for {
		err = f.store.Write(ctx, ws)
		if !errors.Is(err, ErrFenced) {
			return fenced, err
		}
		before := len(fenced)
		var rest []Write
		for _, w := range ws {
			at, askErr := f.store.Begin(ctx, w.Group, w.Token)
			switch {
			case errors.Is(askErr, ErrFenced):
				fenced = append(fenced, w.Group)
				continue
			case askErr != nil:
				return nil, errors.Join(err, askErr)
			case at == w.To:
				w.From, w.Entries = w.To, nil
			}
			rest = append(rest, w)
		}
		if len(fenced) == before { // then it is not a matter of groups
			return nil, err
		}
		ws = rest
	}
}
