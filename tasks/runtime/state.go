package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/snapshot"
)

// snapshots is what a task knows of the snapshots of its state.
type snapshots struct {
	named, kept sharedlog.LSN   // as in the newest marker
	warm        sharedlog.LSN   // the state came from a standby: it has all changes below
	maker       *snapshot.Maker // nil: none are made
}

// keepsState reports whether the task has state that its successors need.
func (t *task) keepsState() bool {
	return len(t.tables) > 0 && t.cfg.Protocol.Capabilities().KeepsChanges
}

func (t *task) group(g int) checkpoint.Group {
	return checkpoint.Group{Job: t.cfg.Layout.Job, Stage: t.spec.Name, Group: g}
}

// begin restores the task's state except the end of the change log: from a standby, or from the
// snapshots.
func (t *task) begin(ctx context.Context, place sharedlog.LSN) (from []sharedlog.LSN, err error) {
	if t.snaps.warm == 0 {
		return t.load(ctx, place)
	}
	t.status.Loaded.Store(0)
	t.status.Replayed.Store(0)
	from = make([]sharedlog.LSN, len(t.isMine))
	for i := range from {
		from[i] = t.snaps.warm
	}
	return from, nil
}

// load reads the key groups' snapshots and returns, by key group, the LSN from which its change log
// is to be replayed. First it makes this instance the groups' only writer in the store, so that the
// snapshots do not change while it reads them.
func (t *task) load(ctx context.Context, place sharedlog.LSN) (from []sharedlog.LSN, err error) {
	from = make([]sharedlog.LSN, len(t.isMine))
	store := t.cfg.Checkpoints
	if store == nil {
		return from, nil
	}
	err = Retry(ctx, t.cfg, "the checkpoint store cannot be read; the task waits for it", func(ctx context.Context) error {
		err := t.loadAll(ctx, store, place, from)
		if err != nil && t.snaps.named == 0 && !errors.Is(err, checkpoint.ErrFenced) {
			// No marker has named a snapshot, so nothing was trimmed: the change log has
			// everything.
			clear(from)
			return nil
		}
		return err
	})
	for _, g := range t.owned {
		if from[g] > place {
			return nil, fmt.Errorf("the checkpoint store holds %v up to LSN %d, this log ends at %d: it is the store of another log, or the log's directory was replaced by an older copy", t.group(g), from[g], place)
		}
	}
	return from, err
}

// loaded is what a loader passes to the task.
type loaded struct {
	group   int
	entries []checkpoint.Entry
	applied chan struct{}
}

// loaders is how many key groups are read concurrently; the task itself applies them, one batch
// after the other.
const loaders = 4

func (t *task) loadAll(ctx context.Context, store checkpoint.Store, place sharedlog.LSN, from []sharedlog.LSN) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, found := make(chan int), make(chan loaded)
	var wg sync.WaitGroup
	for range min(loaders, len(t.owned), 2*runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for g := range work {
				applied := make(chan struct{})
				_, err := store.Begin(ctx, t.group(g), place)
				if err == nil {
					from[g], err = store.Load(ctx, t.group(g), func(es []checkpoint.Entry) error {
						select {
						case found <- loaded{g, es, applied}:
						case <-ctx.Done():
							return ctx.Err()
						}
						<-applied
						return nil
					})
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	go func() {
		defer close(found)
		for _, g := range t.owned {
			select {
			case work <- g:
			case <-ctx.Done():
			}
		}
		close(work)
		wg.Wait()
	}()
	var failed error
	apply := func(l *loaded) {
		defer func() { l.applied <- struct{}{} }() // also when a serde of the job panics
		for i := range l.entries {
			if failed == nil {
				failed = t.applyEntry(l.group, &l.entries[i])
			}
		}
		t.status.Loaded.Add(uint64(len(l.entries)))
		t.reached(observe.RecoveryLoading)
	}
	for l := range found {
		apply(&l)
		if failed != nil {
			cancel(failed)
		}
	}
	if failed != nil {
		return failed
	}
	return context.Cause(ctx)
}

func (t *task) applyEntry(group int, e *checkpoint.Entry) error {
	table, key, err := envelope.SplitKey(e.Key)
	if err != nil {
		return err
	}
	return applyItem(t.tables, group, &envelope.Item{Table: table, Op: envelope.ItemPut, Key: key, Value: e.Value})
}

func applyItem(tables []exec.StateTable, group int, it *envelope.Item) error {
	if it.Table >= uint64(len(tables)) {
		return fmt.Errorf("table %d does not exist: the stage's operators have changed", it.Table)
	}
	if err := tables[it.Table].Apply(group, it.Op, it.Key, it.Value); err != nil {
		return fmt.Errorf("table %q: %w", tables[it.Table].Name(), err)
	}
	return nil
}

// replay applies the change logs of the owned key groups, each from its position, up to place, as
// far as they are committed by the protocol's rules. Below place no group of a predecessor is still
// in flight, and everything is decided.
func (t *task) replay(ctx context.Context, from []sharedlog.LSN, place sharedlog.LSN) error {
	err := t.changeLog(ctx, from, place, func(sharedlog.LSN) {})
	if errors.Is(err, sharedlog.ErrTrimmed) {
		return fmt.Errorf("%w: what lies below is in a checkpoint store, up to LSN %d; this task found less (--checkpoints must be what the job ran with before, and must not have lost more than its newest snapshots)", err, t.snaps.named)
	}
	return err
}

// changeLog applies the change logs of the owned key groups, each from its position, up to until
// (0: as they grow, until ctx ends), and calls reached with its progress.
func (t *task) changeLog(ctx context.Context, from []sharedlog.LSN, until sharedlog.LSN, reached func(sharedlog.LSN)) error {
	o := sharedlog.ReaderOptions{From: ^sharedlog.LSN(0), BelowFloor: true, Until: until}
	for _, g := range t.owned {
		o.Tags = append(o.Tags, t.cfg.Layout.Stages[t.stage].Changes[g])
		o.From = min(o.From, max(from[g], sharedlog.First))
	}
	r, err := t.cfg.Log.NewReader(o)
	if err != nil {
		return err
	}
	defer r.Close()
	changes := t.cfg.Protocol.NewChangeLog()
	for {
		b, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the change log: %w", err)
		}
		for i := range b.Entries {
			due, err := changes.Take(&b.Entries[i])
			for k := range due {
				if err == nil {
					err = t.apply(&due[k], from)
				}
			}
			if err != nil {
				return fmt.Errorf("change record at LSN %d: %w", b.Entries[i].LSN, err)
			}
			t.reached(observe.RecoveryReplaying)
		}
		reached(min(b.Frontier, changes.Low()))
	}
}

// apply applies one change record.
func (t *task) apply(e *sharedlog.Entry, from []sharedlog.LSN) error {
	if _, err := t.scratch.data.Open(e.Data); err != nil {
		return err
	}
	n := 0
	defer func() { t.status.Replayed.Add(uint64(n)) }()
	for {
		s, ok := t.scratch.data.Next()
		if !ok {
			return t.scratch.data.Err()
		}
		if !t.owns(s.Group) || e.LSN < from[s.Group] {
			continue
		}
		for b := s.Data; len(b) > 0; n++ {
			it, rest, err := envelope.NextItem(b)
			if err == nil {
				err = applyItem(t.tables, s.Group, &it)
			}
			if err != nil {
				return fmt.Errorf("key group %d: %w", s.Group, err)
			}
			b = rest
		}
	}
}

// named returns what the next marker says about snapshots.
func (t *task) named() (snapshot, kept sharedlog.LSN) {
	if s := t.status.Newest.Load(); s != nil && s.At > t.snaps.named {
		t.snaps.named, t.snaps.kept = s.At, max(t.snaps.kept, s.Kept)
	}
	return t.snaps.named, t.snaps.kept
}

// unnamed reports whether there is a snapshot that no marker has named.
func (t *task) unnamed() bool {
	s := t.status.Newest.Load()
	return s != nil && s.At > t.snaps.named
}

// Retry calls f until it succeeds or ctx ends, with growing delays, and logs some of the failures.
func Retry(ctx context.Context, cfg *Config, what string, f func(context.Context) error) error {
	wait, said := 50*time.Millisecond, time.Time{}
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if now := cfg.Clock(); now.Sub(said) > 10*time.Second {
			said = now
			cfg.Logger.Warn(what, "error", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
		wait = min(2*wait, 5*time.Second)
	}
}
