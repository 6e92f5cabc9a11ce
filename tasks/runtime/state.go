package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/snapshot"
	"tailrace.dev/tailrace/tasks/standby"
)

// snapshots is what a task knows of the snapshots of its state.
type snapshots struct {
	named, kept sharedlog.LSN             // as in the newest marker
	warm        standby.Groups            // whose state came from a standby
	applied     []sharedlog.LSN           // of a standby: by group the LSN of the newest change
	maker       *snapshot.Maker           // nil: none are made
	joining     map[int]*snapshot.Receipt // groups taken over by this instance
	beside      func(func(context.Context))
}

// keepsState reports whether the task has state that its successors need.
func (t *task) keepsState() bool {
	return len(t.tables) > 0 && t.cfg.Protocol.Capabilities().KeepsChanges
}

func (t *task) group(g int) checkpoint.Group {
	return checkpoint.Group{Job: t.cfg.Layout.Job, Stage: t.spec.Name, Group: g}
}

// groupsOf names key groups in the checkpoint store.
func (t *task) groupsOf(groups []int) (named []checkpoint.Group) {
	for _, g := range groups {
		named = append(named, t.group(g))
	}
	return named
}

// begin restores the task's state except the end of the change log: from a standby, or from the
// snapshots. It returns, by owned group, the LSN from which its change log is to be replayed.
func (t *task) begin(ctx context.Context, place sharedlog.LSN) (from []sharedlog.LSN, err error) {
	t.status.Loaded.Store(0)
	t.status.Replayed.Store(0)
	t.snaps.applied = nil
	if len(t.snaps.warm.Had) == 0 {
		return t.load(ctx, t.owned, place, place, t.snaps.named > 0)
	}
	// Key groups may have moved since the standby began.
	for _, g := range t.snaps.warm.Had {
		if !slices.Contains(t.owned, g) {
			for _, table := range t.tables {
				table.Detach(g)
			}
		}
	}
	cold := standby.Without(t.owned, t.snaps.warm.Had)
	at, err := t.load(ctx, cold, place, place, t.snaps.named > 0)
	if err != nil {
		return nil, err
	}
	for _, g := range t.owned {
		if k := slices.Index(cold, g); k >= 0 {
			from = append(from, at[k])
		} else {
			from = append(from, t.snaps.warm.Below[slices.Index(t.snaps.warm.Had, g)])
		}
	}
	return from, nil
}

// load reads the snapshots of key groups and returns, for each, the LSN from which its change log is
// to be replayed. First it makes this instance, by the token, the groups' only writer in the store,
// so that the snapshots do not change while it reads them. named says whether a marker has named a
// snapshot of them; the log ends at tail.
func (t *task) load(ctx context.Context, groups []int, token, tail sharedlog.LSN, named bool) (from []sharedlog.LSN, err error) {
	none := make([]sharedlog.LSN, len(groups))
	store := t.cfg.Checkpoints
	if store == nil {
		return none, nil
	}
	var lasting error // trying again does not help
	err = t.cfg.Retry(ctx, "the checkpoint store cannot be read; the task waits for it", func(ctx context.Context) (err error) {
		from, err = t.loadFrom(ctx, store, groups, token)
		if err != nil && !named && !errors.Is(err, checkpoint.ErrFenced) {
			// Nothing was trimmed: the change log has everything.
			from = none
			return nil
		}
		if errors.Is(err, checkpoint.ErrDamaged) {
			lasting = err
			return nil
		}
		return err
	})
	if err = errors.Join(err, lasting); err != nil {
		return nil, err
	}
	for i, at := range from {
		if at > tail {
			return nil, fmt.Errorf("the checkpoint store holds %v up to LSN %d, this log ends at %d: it is the store of another log, or the log's directory was replaced by an older copy", t.group(groups[i]), at, tail)
		}
	}
	return from, err
}

// loadFrom is load from a store that can be read.
func (t *task) loadFrom(ctx context.Context, store checkpoint.Store, groups []int, token sharedlog.LSN) (from []sharedlog.LSN, err error) {
	return snapshot.Load(ctx, store, t.groupsOf(groups), token, func(i int, entries []checkpoint.Entry) error {
		for k := range entries {
			if err := t.applyEntry(groups[i], &entries[k]); err != nil {
				return err
			}
		}
		t.status.Loaded.Add(uint64(len(entries)))
		t.reached(observe.RecoveryLoading)
		return nil
	})
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

// replay applies the change logs of key groups, each from its position, up to place, as far as they are committed by the
// protocol's rules. Below place no group of a predecessor is still in flight, and everything is decided.
func (t *task) replay(ctx context.Context, groups []int, from []sharedlog.LSN, place sharedlog.LSN) error {
	changes := t.cfg.Protocol.NewChangeLog()
	err := t.changeLog(ctx, changes, groups, from, place, func(sharedlog.LSN) {})
	if changes.Low() < place { // a predecessor ended amid a commit; followers of the change logs wait for it, if nothing changes
		t.out.decided = append(t.out.decided, groups...)
	}
	if errors.Is(err, sharedlog.ErrTrimmed) {
		return fmt.Errorf("%w: what lies below is in a checkpoint store, up to LSN %d; this task found less (--checkpoints must be what the job ran with before, and must not have lost more than its newest snapshots)", err, t.snaps.named)
	}
	return err
}

// changeLog applies, as changes says, the change logs of key groups, each from its position, up to until (0: as they
// grow, until ctx ends), and calls reached with its progress.
func (t *task) changeLog(ctx context.Context, changes checkpoint.ChangeLog, groups []int, from []sharedlog.LSN, until sharedlog.LSN, reached func(sharedlog.LSN)) error {
	at := slices.Repeat([]sharedlog.LSN{never}, len(t.from))
	var read []snapshot.Position
	for i, g := range groups {
		at[g] = from[i]
		read = append(read, snapshot.Position{Tag: t.cfg.Layout.Stages[t.stage].Changes[g], From: from[i]})
	}
	return snapshot.Replay(ctx, t.cfg.Log, changes, read, until, func(e *sharedlog.Entry) error {
		err := t.apply(e, at)
		t.reached(observe.RecoveryReplaying)
		return err
	}, reached)
}

// apply applies one change record to the key groups whose position it is not below.
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
		if s.Group >= len(from) || e.LSN < from[s.Group] {
			continue
		}
		if t.snaps.applied != nil {
			t.snaps.applied[s.Group] = e.LSN
		}
		of, err := t.applyItems(s.Group, s.Data)
		if n += of; err != nil {
			return err
		}
	}
}

// applyItems applies the items of a key group and returns how many they are.
func (t *task) applyItems(group int, b []byte) (n int, err error) {
	for ; len(b) > 0; n++ {
		it, rest, err := envelope.NextItem(b)
		if err == nil {
			err = applyItem(t.tables, group, &it)
		}
		if err != nil {
			return n, fmt.Errorf("key group %d: %w", group, err)
		}
		b = rest
	}
	return n, nil
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
