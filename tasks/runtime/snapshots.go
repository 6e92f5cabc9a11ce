package runtime

import (
	"context"
	"maps"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/pace"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/snapshot"
)

// snapshots starts making the task's snapshots, beside it. The returned function stops that.
func (t *task) snapshots(ctx context.Context) (stop func()) {
	if t.cfg.Checkpoints == nil || !t.keepsState() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var sources []checkpoint.Source
	for _, g := range t.owned {
		if t.snaps.joining[g] == nil {
			sources = append(sources, t.source(g, t.inst.place))
		}
	}
	t.snaps.maker = t.snapshotMaker(sources)
	for g := range t.snaps.joining {
		t.snaps.maker.Expect(g)
	}
	var wg sync.WaitGroup
	wg.Go(func() { t.snaps.maker.Run(ctx) })
	t.snaps.beside = func(f func(ctx context.Context)) { wg.Go(func() { f(ctx) }) }
	return func() {
		cancel()
		wg.Wait()
	}
}

// snapshotMaker returns the maker of snapshots of some groups.
func (t *task) snapshotMaker(sources []checkpoint.Source) *snapshot.Maker {
	cfg := t.cfg
	return snapshot.New(snapshot.Options{
		Log: cfg.Log, Store: cfg.Checkpoints, Status: t.status, Clock: cfg.Clock, Timeout: WriteTimeout, Reached: t.reached,
		Changes: func() checkpoint.ChangeLog { return cfg.Protocol.NewChangeLog() },
		Rule: pace.Rule{
			Interval: int64(cfg.SnapshotInterval), Bytes: uint64(max(cfg.SnapshotBytes, 0)), Memory: cfg.SnapshotMemory,
			LossWindow: int64(cfg.Checkpoints.LossWindow()),
		},
		Retry: func(ctx context.Context, f func(context.Context) error) {
			_ = cfg.Retry(ctx, "no snapshot can be made for now; processing continues, and the change log grows", f)
		},
	}, sources, t.snaps.kept)
}

// Received says from which release key groups come, and what the giver's marker said of their
// snapshots. Whole is closed when the task has their state.
type Received struct {
	Groups         []int
	Snapshot, Kept sharedlog.LSN
	Whole          <-chan struct{}
	// Positions are those of the giver's marker, if the groups are partitions of a source.
	Positions []envelope.Position
	// Clock is what the giver's wall-clock timers have fired up to.
	Clock int64
}

// Receive makes the commit by which the task takes over key groups from other tasks. Its snapshots
// follow their change logs once the commit is in the log for good: its LSN is then their token, which
// rises from owner to owner.
// fresh says that the task has no other groups.
func (e *Engine) Receive(ctx context.Context, all []Received, fresh bool) error {
	t := e.t
	if t.snaps.joining == nil {
		t.snaps.joining = map[int]*snapshot.Receipt{}
	}
	for i, r := range all {
		t.restoreClock(r.Clock)
		t.snaps.received(r, fresh && i == 0)
		for _, g := range r.Groups {
			t.snaps.joining[g] = new(snapshot.Receipt)
			if t.snaps.maker != nil {
				t.snaps.maker.Expect(g)
			}
		}
	}
	if t.spec.Partitions > 0 {
		for _, r := range all {
			if err := t.chain.Take(r.Groups, positions(r.Positions)); err != nil {
				return err
			}
		}
	}
	receipts := maps.Clone(t.snaps.joining)
	if err := e.Commit(ctx); err != nil {
		return err
	}
	e.Landed(func(at sharedlog.LSN) {
		for _, r := range all {
			t.joined(r, at, receipts)
		}
	})
	return nil
}

// received changes what the next marker says, so that it holds for groups that come from another
// task. The task has no other groups if first is set.
func (s *snapshots) received(r Received, first bool) {
	if first {
		s.named, s.kept = r.Snapshot, r.Kept
		return
	}
	s.kept = min(s.kept, r.Kept)
	switch {
	case s.named == 0:
		s.named = min(r.Snapshot, sharedlog.First) // there is one, at least of these groups
	case r.Snapshot > 0:
		s.named = min(s.named, r.Snapshot)
	}
}

// joined makes the snapshots follow the change logs of groups that the task has taken over by a
// commit at an LSN.
func (t *task) joined(r Received, at sharedlog.LSN, receipts map[int]*snapshot.Receipt) {
	if t.snaps.maker == nil {
		return // there is no store, or the task has no state
	}
	t.snaps.beside(func(ctx context.Context) {
		_ = t.cfg.Retry(ctx, "the log does not say what is durable; snapshots wait for it", func(ctx context.Context) error {
			return checkpoint.Durable(ctx, t.cfg.Log, at+1)
		})
		select {
		case <-r.Whole: // before, the task reads them from the store
		case <-ctx.Done():
		}
		for _, g := range r.Groups {
			if ctx.Err() == nil {
				t.snaps.maker.Add(t.source(g, at), r.Kept, receipts[g])
			}
		}
	})
}

// unfollow ends the snapshots of groups that the task has given away.
func (t *task) unfollow(groups []int) {
	for _, g := range groups {
		if t.snaps.maker != nil {
			t.snaps.maker.Drop(g, t.snaps.joining[g])
		}
		delete(t.snaps.joining, g)
	}
}

// source returns a key group's change log; the task is the group's only writer since token.
func (t *task) source(g int, token sharedlog.LSN) checkpoint.Source {
	return checkpoint.Source{Group: t.group(g), Tag: t.cfg.Layout.Stages[t.stage].Changes[g], Token: token}
}

// WriteTimeout bounds one write to a checkpoint store, so that a store that hangs is reported.
const WriteTimeout = time.Minute
