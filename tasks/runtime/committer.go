package runtime

import (
	"context"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/sharedlog"
)

// committer appends a task's commits as the protocol prescribes and knows when each is decided.
type committer interface {
	// begin registers a new instance, which is the only one from place on. It returns the place
	// below which everything is decided that predecessors left.
	begin(ctx context.Context, place sharedlog.LSN) (sharedlog.LSN, error)
	// flush appends outputs, or changes, of a commit before its marker.
	flush(ctx context.Context, commit uint64, records []sharedlog.Record) error
	// commit ends a commit; names says that its marker names a snapshot for the first time.
	commit(ctx context.Context, groups [][]sharedlog.Record, names bool) error
	// drain waits until everything is decided and in the log.
	drain(ctx context.Context) error
	// kept is the LSN from which the task's transaction stream is needed; 0: it has none.
	kept() sharedlog.LSN
	// close ends the work in progress.
	close()
}

// direct commits by markers only: a commit is in the log or it is not.
type direct struct{ t *task }

func (direct) begin(_ context.Context, place sharedlog.LSN) (sharedlog.LSN, error) { return place, nil }

func (a direct) flush(ctx context.Context, _ uint64, records []sharedlog.Record) error {
	return a.t.append(ctx, records, false)
}

func (a direct) commit(ctx context.Context, groups [][]sharedlog.Record, names bool) error {
	for i, group := range groups {
		if err := a.t.append(ctx, group, i == len(groups)-1); err != nil {
			return err
		}
	}
	if names {
		a.t.inflight[len(a.t.inflight)-1].names = true
		crash.Here(crash.SnapshotNaming)
	}
	return nil
}

func (direct) kept() sharedlog.LSN { return 0 }
func (direct) close()              {}

func (a direct) drain(ctx context.Context) error { return a.t.acknowledged(ctx) }
