package txn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/slice"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	committer "tailrace.dev/tailrace/tasks/commit/txn"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
	"tailrace.dev/tailrace/tasks/txn"
	"tailrace.dev/tailrace/tasks/txn/coordinator"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// configure returns the configuration of a job that counts 100 numbers by their remainder. Its
// producers are in the log.
func configure(t *testing.T) *runtime.Config {
	items := make([]int64, 100)
	for i := range items {
		items[i] = int64(i)
	}
	dsl := operators.NewJob("counting")
	in := operators.FromSource(dsl, "numbers", slice.Of(items, func(v *int64) int64 { return *v }), serde.Int64)
	counts := operators.Count(operators.KeyBy(in, "keyed", serde.Int64, func(v *int64) int64 { return *v % 7 }))
	operators.ToSink(counts, "out", optest.Collect[operators.Change[int64, int64]](nil))
	plan, err := dsl.Plan()
	require.NoError(t, err)
	l, err := layout.New(plan, "j", 4, 2)
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	owner := sharedlog.Condition{Key: tags.ManagerKey("j"), Value: []byte("1")}
	_, err = log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "w", owner)
	for i, s := range l.Streams {
		p := envelope.Producers{Stream: uint32(i), Stage: uint32(s.Producer), Tasks: l.Stages[s.Producer].Tasks}
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{s.All}, Data: p.Append(nil)}).Wait(t.Context())
		require.NoError(t, err)
	}
	return &runtime.Config{
		Log: log, Layout: l, Protocol: progress.Txn, CommitInterval: time.Millisecond, FlushInterval: time.Millisecond,
		CommitBytes: 1 << 20, HeldMemory: 1 << 20, InFlight: 4, OnError: runtime.OnErrorFail, Clock: time.Now, Logger: quiet,
	}
}

func run(t *testing.T, cfg *runtime.Config, c committer.Coordinator) error {
	cfg.Commits = committer.New(c)
	j, err := runtime.Start(t.Context(), cfg)
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
	cfg := configure(t)
	c := &asked{Coordinator: coordinator.On(cfg.Log, quiet)}
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
			cfg := configure(t)
			err := run(t, cfg, &asked{Coordinator: coordinator.On(cfg.Log, quiet), answer: c.answer})
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
