package tasks_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// tokens is a store that compares the tokens it receives with what is durable in the log.
type tokens struct {
	checkpoint.Store
	log        sharedlog.Log
	got, early atomic.Int64
}

func (s *tokens) Begin(ctx context.Context, g checkpoint.Group, token sharedlog.LSN) (sharedlog.LSN, error) {
	s.got.Add(1)
	if token > s.log.Stats().Durable {
		s.early.Add(1)
	}
	return s.Store.Begin(ctx, g, token)
}

// A store receives no token that a power failure could remove from the log.
func TestTokensAreDurable(t *testing.T) {
	w := newWorld(2, 3000, 3)
	for _, protocol := range []string{"fused", "marker", "txn", "aligned", "aligned-early"} {
		t.Run(protocol, func(t *testing.T) {
			log, err := embedded.Open("log", embedded.Options{FS: vfs.NewMem(), Fsync: embedded.FsyncNever, Logger: quiet})
			require.NoError(t, err)
			defer log.Close()
			// This puts the first instance's place above the durable end.
			other := sharedlog.NewWriter(log, "other", sharedlog.Condition{})
			_, err = other.Append(sharedlog.Record{Tags: []sharedlog.Tag{"other"}, Data: []byte("x")}).Wait(t.Context())
			require.NoError(t, err)
			store := &tokens{Store: storetest.NewMem(), log: log}
			file := filepath.Join(t.TempDir(), "out")
			require.NoError(t, tasks.Run(t.Context(), log, w.plan(t, file), tasks.Options{
				Protocol: protocol, Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: store, SnapshotInterval: time.Millisecond,
			}))
			require.NotZero(t, store.got.Load())
			require.Zero(t, store.early.Load(), "tokens above what was durable")
		})
	}
}

// Nor does the copy of a savepoint.
func TestTokenOfSavepointIsDurable(t *testing.T) {
	w := newWorld(2, 3000, 3)
	log, err := embedded.Open("log", embedded.Options{FS: vfs.NewMem(), Fsync: embedded.FsyncNever, Logger: quiet})
	require.NoError(t, err)
	defer log.Close()
	store := &tokens{Store: storetest.NewMem(), log: log}
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 500}
	job, err := tasks.Start(t.Context(), log, counts(t, filepath.Join(t.TempDir(), "out"), g), tasks.Options{
		Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: store, SnapshotInterval: time.Hour,
	})
	require.NoError(t, err)
	_, err = job.Savepoint(t.Context(), "one", true)
	require.NoError(t, err)
	require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
	require.Zero(t, store.early.Load(), "tokens above what was durable")
}
