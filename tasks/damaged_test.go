package tasks_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// damaged is a store whose files cannot be read.
type damaged struct{ checkpoint.Store }

func (damaged) Load(context.Context, checkpoint.Group, func([]checkpoint.Entry) error) (sharedlog.LSN, error) {
	return 0, fmt.Errorf("checkpoint store: %w", checkpoint.ErrDamaged)
}

// A job whose snapshots are damaged, and whose change logs begin at them, ends with an error instead of waiting for a store that
// does not come back. When the file has been put back, it ends with the right rows.
func TestDamagedSnapshots(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	begin := time.Now().UnixMilli()
	plan, want := working(t, 20_000, func(k int) int64 { return begin + int64(k)/5 }, 0, file)
	log, store := mem.New(mem.Options{}), storetest.NewMem()
	start := func(store checkpoint.Store) *tasks.Job {
		job, err := tasks.Start(t.Context(), log, plan, tasks.Options{
			Parallelism: 2, Groups: 8, CommitInterval: 5 * time.Millisecond, Logger: quiet,
			Checkpoints: store, SnapshotInterval: 5 * time.Millisecond, TrimBytes: 1, TrimInterval: time.Millisecond,
		})
		require.NoError(t, err)
		return job
	}
	job := start(store)
	// Snapshots are made, and markers name them.
	require.Eventually(t, func() bool { return items(job, "by-key") > 4000 }, time.Minute, 10*time.Millisecond)
	job.Stop()
	_ = job.Wait()
	job = start(damaged{store})
	select {
	case <-job.Done():
	case <-time.After(20 * time.Second):
		job.Stop()
		t.Error("it waits")
	}
	require.ErrorIs(t, job.Wait(), checkpoint.ErrDamaged)
	require.NoError(t, start(store).Wait())
	sameRows(t, want, lines(t, file))
}
