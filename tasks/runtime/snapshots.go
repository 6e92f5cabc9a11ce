package runtime

import (
	"context"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/pace"
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
		sources = append(sources, t.source(g, t.inst.place))
	}
	t.snaps.maker = t.snapshotMaker(sources)
	var wg sync.WaitGroup
	wg.Go(func() { t.snaps.maker.Run(ctx) })
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
			_ = Retry(ctx, cfg, "no snapshot can be made for now; processing continues, and the change log grows", f)
		},
	}, sources, t.snaps.kept)
}

// source returns a key group's change log; the task is the group's only writer since token.
func (t *task) source(g int, token sharedlog.LSN) checkpoint.Source {
	return checkpoint.Source{Group: t.group(g), Tag: t.cfg.Layout.Stages[t.stage].Changes[g], Token: token}
}

// WriteTimeout bounds one write to a checkpoint store, so that a store that hangs is reported.
const WriteTimeout = time.Minute
