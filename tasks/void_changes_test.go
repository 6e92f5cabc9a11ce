package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/progress"
)

// undecided returns how many tasks' change logs of stage by-key have changes that their reader still waits with.
func undecided(t *testing.T, log sharedlog.Log, job *tasks.Job, protocol string) (n int) {
	p, err := progress.ByName(protocol)
	require.NoError(t, err)
	l := job.Layout()
	stage := slices.IndexFunc(l.Plan.Stages, func(s exec.StageSpec) bool { return s.Name == "by-key" })
	for task := range l.Stages[stage].Tasks {
		var tags []sharedlog.Tag
		for _, g := range l.Owned(stage, task) {
			tags = append(tags, l.Stages[stage].Changes[g])
		}
		tail, err := log.Tail(t.Context())
		require.NoError(t, err)
		r, err := log.NewReader(sharedlog.ReaderOptions{Tags: tags, From: sharedlog.First, Until: tail})
		require.NoError(t, err)
		changes := p.NewChangeLog()
		for {
			b, err := r.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			for i := range b.Entries {
				_, err := changes.Take(&b.Entries[i])
				require.NoError(t, err)
			}
		}
		require.NoError(t, r.Close())
		if changes.Low() < tail {
			n++
		}
	}
	return n
}

// keeping is a job of which each item changes more than fits the group of a commit.
func keeping(t *testing.T, _ string, src operators.Source[int64]) *operators.Plan {
	job := operators.NewJob("keeping")
	keys := operators.KeyBy(operators.FromSource(job, "in", src, serde.Int64), "by-key", serde.Int64, func(n *int64) int64 { return *n % 7 })
	none := operators.Process(keys, "keep", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
		all := operators.NewList(c, "all", serde.Int64)
		return operators.Handler[int64]{Item: func(n *int64) {
			for range 400 {
				all.Add(c.Time(), n)
			}
		}}
	})
	operators.ToSink(none, "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

// A process dies amid transactions, or between the parts of commits, whose changes are in the log. The tasks' next instances say that
// these are void with their first commits, although they have nothing to commit: a savepoint, a snapshot or a standby would wait with
// them until the same tasks change something again.
func TestVoidChanges(t *testing.T) {
	t.Run("txn", func(t *testing.T) { voidChanges(t, "txn", 4000, counts) })
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) { voidChanges(t, protocol, 12, keeping) })
	}
}

func voidChanges(t *testing.T, protocol string, items int, plan func(t *testing.T, file string, src operators.Source[int64]) *operators.Plan) {
	void := 0
	for groups := 1; ; groups++ {
		w := newWorld(5, items, 2)
		file := filepath.Join(t.TempDir(), fmt.Sprint(groups))
		src := optest.Items(delay, w.parts...)
		o := tasks.Options{Protocol: protocol, Parallelism: 2, Groups: 4, CommitBytes: 1 << 10, CommitInterval: time.Millisecond, Logger: quiet}
		log := mem.New(mem.Options{})
		d := newDying(log, groups)
		var first *tasks.Job
		died := false
		err := live(t, d, func() error { died = true; return nil }, func(ctx context.Context) (err error) {
			if first, err = tasks.Start(ctx, d, plan(t, file, src), o); err != nil {
				return err
			}
			return first.Wait()
		})
		require.NoError(t, err)
		if !died {
			break // it has ended
		}
		if first == nil { // it died before it had started
			continue
		}
		void += undecided(t, log, first, protocol)

		var announced [2]atomic.Bool
		o.CommitBytes, o.CommitInterval, o.FlushInterval = 0, time.Hour, time.Hour
		o.Observer = func(e observe.Event) {
			if e.Step == observe.RecoveryAnnounced && e.Stage == "by-key" {
				announced[e.Task].Store(true)
			}
		}
		job, err := tasks.Start(t.Context(), log, plan(t, file, gate{src, new(atomic.Bool), 0}), o) // nothing more comes
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			for _, s := range job.Status() {
				if s.Stage == "by-key" && !s.Ended && !announced[s.Task].Load() {
					return false
				}
			}
			return undecided(t, log, job, protocol) == 0
		}, time.Minute, time.Millisecond)
		job.Stop()
	}
	require.Positive(t, void, "no process died amid a commit with changes")
	t.Log(void, "tasks had changes that were never committed")
}
