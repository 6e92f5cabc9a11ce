package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/commit/committest"
	committer "tailrace.dev/tailrace/tasks/commit/txn"
	"tailrace.dev/tailrace/tasks/embedded"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/txn"
	"tailrace.dev/tailrace/tasks/txn/coordinator"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

func run(t *testing.T, cfg *runtime.Config, c committer.Coordinator) error {
	cfg.Commits, cfg.Clock = committer.New(c), time.Now
	j, err := embedded.Start(t.Context(), cfg)
	require.NoError(t, err)
	return j.Wait()
}

// asked is a coordinator that records the requests, and may answer itself.
type asked struct {
	committer.Coordinator
	answer func(r *txnpb.Request) (*txnpb.Reply, error) // nil, nil: the coordinator does

	mu       sync.Mutex
	requests map[string][]*txnpb.Request // by task
}

func (a *asked) Call(ctx context.Context, r *txnpb.Request) (*txnpb.Reply, error) {
	a.mu.Lock()
	if a.requests == nil {
		a.requests = map[string][]*txnpb.Request{}
	}
	key := fmt.Sprintf("%s/%d", r.Stage, r.Task)
	a.requests[key] = append(a.requests[key], r)
	a.mu.Unlock()
	if a.answer != nil {
		if reply, err := a.answer(r); reply != nil || err != nil {
			return reply, err
		}
	}
	return a.Coordinator.Call(ctx, r)
}

// An instance registers itself first. Then each transaction registers partitions, each of them once
// and the task's progress with the first, before it commits; and it is awaited before the next one
// begins.
func TestTransactions(t *testing.T) {
	cfg := committest.Counting(t, progress.Txn)
	c := &asked{Coordinator: coordinator.On(cfg.Log, cfg.Logger)}
	require.NoError(t, run(t, cfg, c))
	tasks := 0
	for _, s := range cfg.Layout.Stages {
		tasks += s.Tasks
	}
	require.Len(t, c.requests, tasks)
	for task, all := range c.requests {
		require.Equal(t, txn.Init, all[0].Op, task)
		number, awaited := uint64(0), true
		var added map[string]bool
		for _, r := range all[1:] {
			require.EqualValues(t, 1, r.Instance, task)
			switch r.Op {
			case txn.Add:
				if r.Number != number {
					require.True(t, awaited, "%s: %d begins before %d is done", task, r.Number, number)
					require.Equal(t, number+1, r.Number, task)
					require.Equal(t, txn.OfProgress, r.Partitions[0].Of, task)
					number, awaited, added = r.Number, false, map[string]bool{}
				}
				for _, p := range r.Partitions {
					id := fmt.Sprint(p.Of, p.Stream, p.Groups)
					require.False(t, added[id], "%s: %s is registered twice in transaction %d", task, id, number)
					added[id] = true
				}
			case txn.Commit:
				require.Equal(t, number, r.Number, task)
				var m envelope.Marker
				require.NoError(t, m.Parse(r.Marker), task)
				require.Equal(t, number, m.Commit, task)
			case txn.Await:
				require.Equal(t, number, r.Number, task)
				awaited = true
			}
		}
		require.True(t, awaited, task)
	}
}

// A request without an answer is repeated; an answer that is final ends the task.
func TestAnswers(t *testing.T) {
	away := 3
	var mu sync.Mutex
	for _, c := range []struct {
		name   string
		answer func(r *txnpb.Request) (*txnpb.Reply, error)
		is     error
		want   string
	}{
		{"the coordinator is away for a while", func(*txnpb.Request) (*txnpb.Reply, error) {
			mu.Lock()
			defer mu.Unlock()
			if away--; away >= 0 {
				return nil, errors.New("no node answers")
			}
			return nil, nil
		}, nil, ""},
		{"a newer instance exists", func(r *txnpb.Request) (*txnpb.Reply, error) {
			if r.Op == txn.Commit {
				return &txnpb.Reply{Outcome: txn.Fenced, Text: "instance 2 has taken over"}, nil
			}
			return nil, nil
		}, runtime.ErrFenced, "this was instance 1; instance 2 has taken over"},
		{"the request is refused", func(r *txnpb.Request) (*txnpb.Reply, error) {
			if r.Op == txn.Add {
				return &txnpb.Reply{Outcome: txn.Refused, Text: "another transaction is open"}, nil
			}
			return nil, nil
		}, nil, "transaction coordinator: another transaction is open"},
		{"an error that stays", func(*txnpb.Request) (*txnpb.Reply, error) {
			return nil, sharedlog.Errorf(sharedlog.KindInvalid, "no such cluster")
		}, sharedlog.ErrInvalid, "no such cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := committest.Counting(t, progress.Txn)
			err := run(t, cfg, &asked{Coordinator: coordinator.On(cfg.Log, cfg.Logger), answer: c.answer})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}
