package tasks_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// stalled is a log whose standbys get no more of the change logs once stop is set.
type stalled struct {
	sharedlog.Log
	stop    atomic.Bool
	stopped atomic.Int64 // readers that wait
}

func (l *stalled) NewReader(o sharedlog.ReaderOptions) (sharedlog.Reader, error) {
	r, err := l.Log.NewReader(o)
	if err != nil || o.Until > 0 || len(o.Tags) == 0 || !strings.HasPrefix(string(o.Tags[0]), "C/") {
		return r, err
	}
	return stalledReader{r, l}, nil
}

type stalledReader struct {
	sharedlog.Reader
	l *stalled
}

func (r stalledReader) Next(ctx context.Context) (sharedlog.Batch, error) {
	if r.l.stop.Load() {
		r.l.stopped.Add(1)
		<-ctx.Done()
		return sharedlog.Batch{}, ctx.Err()
	}
	return r.Reader.Next(ctx)
}

// An instance takes over a standby that has fallen behind what is trimmed: it restores from the snapshots, and the job continues.
func TestStandbyBehindWhatIsTrimmed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	begin := time.Now().UnixMilli()
	plan, want := working(t, 20_000, func(k int) int64 { return begin + int64(k)/5 }, 0, file)
	log := &stalled{Log: mem.New(mem.Options{})}
	job, err := tasks.Start(t.Context(), log, plan, tasks.Options{
		Parallelism: 1, Groups: 8, CommitInterval: 5 * time.Millisecond, Logger: quiet, Standbys: 1,
		Checkpoints: storetest.NewMem(), SnapshotInterval: 5 * time.Millisecond, TrimBytes: 1, TrimInterval: time.Millisecond,
	})
	require.NoError(t, err)
	stage := slices.IndexFunc(job.Layout().Plan.Stages, func(s exec.StageSpec) bool { return s.Name == "by-key" })
	changes := job.Layout().Stages[stage].Changes
	require.Eventually(t, func() bool { return items(job, "by-key") > 4000 }, time.Minute, 10*time.Millisecond)
	log.stop.Store(true)
	require.Eventually(t, func() bool { return log.stopped.Load() > 0 }, time.Minute, time.Millisecond)
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { // what the standby lacks is trimmed
		r, err := log.Log.NewReader(sharedlog.ReaderOptions{Tags: changes, From: tail})
		require.NoError(t, err)
		defer r.Close()
		_, err = r.TryNext()
		return err != nil
	}, time.Minute, time.Millisecond)
	_, err = job.Fail(t.Context(), stage, 0)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	sameRows(t, want, lines(t, file))
}
