package tasks_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// dying is a log that accepts a number of groups from tasks and then no more: an append gets no
// answer from then on, and the job is stopped.
type dying struct {
	sharedlog.Log
	left  atomic.Int64
	death chan struct{}

	mu         sync.Mutex
	unanswered []*sharedlog.Pending
	buried     bool
}

func newDying(log sharedlog.Log, groups int) *dying {
	d := &dying{Log: log, death: make(chan struct{})}
	d.left.Store(int64(groups))
	return d
}

func (d *dying) Append(g sharedlog.Group) *sharedlog.Pending {
	switch n := d.left.Add(-1); {
	case n >= 0:
		return d.Log.Append(g)
	case n == -1:
		close(d.death)
	}
	p := sharedlog.NewPending()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.buried {
		p.Complete(0, sharedlog.ErrClosed)
	} else {
		d.unanswered = append(d.unanswered, p)
	}
	return p
}

// bury fails the appends without an answer, now that the job is gone: what waits for them would keep
// the log in memory until the end of the tests.
func (d *dying) bury() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.unanswered {
		p.Complete(0, sharedlog.ErrClosed)
	}
	d.unanswered, d.buried = nil, true
}

// A job that makes many items of few is killed at every group that it appends, a commit or a part
// of one, and resumes: its rows are those of an undisturbed run.
func TestFanOutKilled(t *testing.T) {
	lives := 12 // a run has some hundred groups: use this many of them each time
	if os.Getenv("TAILRACE_SOAK") != "" {
		lives = 1000
	}
	for _, f := range fanOuts {
		// A hundredth of the bytes, and of the bounds.
		f.size = max(f.size/100, 10)
		for _, protocol := range []string{"fused", "marker", "txn", "aligned"} {
			t.Run(f.name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				o := tasks.Options{
					Protocol: protocol, Parallelism: 2, Groups: 4, CommitBytes: 10 << 10, CommitInterval: time.Millisecond, HeldMemory: 20 << 10,
					TrimBytes: 1, TrimInterval: time.Millisecond, SnapshotInterval: time.Millisecond, Logger: quiet,
				}
				groups := 0
				for at, step := 1, 1; at <= groups+1; at += step {
					plan, out := f.plan(t)
					log := mem.New(mem.Options{})
					o.Checkpoints = storetest.NewMem()
					d := newDying(log, at)
					err := live(t, d, func() error { return tasks.Run(t.Context(), log, plan, o) }, func(ctx context.Context) error { return tasks.Run(ctx, d, plan, o) })
					require.NoError(t, err, "killed at group %d", at)
					require.Equal(t, f.want(&f), count(out.Rows), "killed at group %d", at)
					if groups == 0 { // as many as were left in a run that was not killed
						groups = int(log.Stats().Groups)
						step = max(groups/lives, 1)
					}
				}
			})
		}
	}
}

// live runs lives of the job until one ends before the log ends it.
func live(t *testing.T, d *dying, again func() error, life func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer d.bury()
	done := make(chan error, 1)
	go func() { done <- life(ctx) }()
	select {
	case err := <-done:
		return err
	case <-d.death:
		cancel()
		if err := <-done; err == nil {
			return fmt.Errorf("it has ended, but its log had died")
		}
	}
	return again()
}
