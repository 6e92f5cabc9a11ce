package tasks_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/tags"
)

// Tasks die one after the other and resume elsewhere, with warm copies of their state: no copy has
// changes that were not committed.
func TestTransactionsTakenOver(t *testing.T) {
	w := newWorld(7, 30_000, 3)
	for seed := range uint64(3) {
		dir := t.TempDir()
		log := open(t, dir)
		file := filepath.Join(dir, "out")
		job, err := tasks.Start(t.Context(), log, w.plan(t, file), tasks.Options{
			Protocol: "txn", Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, CommitBytes: 2 << 10, Logger: quiet,
			TrimBytes: -1, Standbys: 1, Lead: 16 << 10,
		})
		require.NoError(t, err)
		rng := rand.New(rand.NewPCG(seed, 8))
		failed := 0
		for ; failed < 20 && !isDone(job); failed++ {
			stage := rng.IntN(len(job.Layout().Stages))
			r, err := job.Fail(t.Context(), stage, rng.IntN(job.Layout().Stages[stage].Tasks))
			if err != nil {
				require.ErrorIs(t, err, tasks.ErrEnded) // meanwhile
				break
			}
			// It has started, and does some work before the next one dies.
			require.Eventually(t, func() bool {
				return r.Status().Commits > uint64(1+rng.IntN(3)) || isDone(job) || closed(r.Done())
			}, time.Minute, 100*time.Microsecond)
		}
		require.NoError(t, job.Wait())
		require.NotZero(t, failed)
		sameRows(t, w.want, lines(t, file))
		require.NoError(t, log.Close())
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A job that is deleted leaves no transactions in the log.
func TestTransactionsAreCleared(t *testing.T) {
	w := newWorld(3, 500, 1)
	log := mem.New(mem.Options{})
	plan := w.plan(t, filepath.Join(t.TempDir(), "out"))
	o := tasks.Options{Protocol: "txn", Parallelism: 1, Groups: 2, Logger: quiet}
	job, err := tasks.Start(t.Context(), log, plan, o)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	spec, err := tasks.Describe(plan, o)
	require.NoError(t, err)
	trimmer, err := spec.Trimmer(log, job.Layout().Job)
	require.NoError(t, err)
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	transactions := func(stage string) error {
		_, found, err := log.Last(t.Context(), tags.Transactions(job.Layout().Job, stage, 0), tail)
		require.True(t, found || err != nil)
		return err
	}
	for _, st := range plan.Stages {
		require.NoError(t, transactions(st.Name))
	}
	require.NoError(t, trimmer.Clear(t.Context()))
	for _, st := range plan.Stages {
		require.ErrorIs(t, transactions(st.Name), sharedlog.ErrTrimmed)
	}
}
