package jobs_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/etcdserver"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/fencing"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/manager/server"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/tags"
)

// managed returns a manager's etcd and log. There are no workers.
func managed(t *testing.T) (*meta.Store, sharedlog.Log) {
	store, log, manage := cluster(t)
	manage(0)
	return store, log
}

// cluster returns an etcd and a log, and what starts a manager that trims in an interval (0: never).
func cluster(t *testing.T) (*meta.Store, sharedlog.Log, func(trim time.Duration) *server.Server) {
	etcd, err := etcdserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	t.Cleanup(etcd.Close)
	store, err := meta.Open(meta.Options{Endpoints: []string{etcd.Addr()}, Cluster: "c"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Check(t.Context()))
	d, err := transport.NewDialer(transport.Options{Cluster: "c"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	log := mem.New(mem.Options{})
	return store, log, func(trim time.Duration) *server.Server {
		s := server.Start(server.Options{Log: log, Store: store, Dialer: d, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Me: meta.Manager{Name: "m"}, Cluster: meta.Cluster{ID: "id"}, TrimInterval: trim})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
}

func described(t *testing.T, parallelism int) *tasks.Spec {
	job := operators.NewJob("job")
	keys := operators.FromSource(job, "keys", optest.Items(0, []optest.Timed[int64]{optest.At[int64](1, 1)}), serde.Int64)
	operators.ToSink(keys, "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	s, err := tasks.Describe(plan, tasks.Options{Parallelism: parallelism, Groups: 8})
	require.NoError(t, err)
	s.Program = "p"
	return s
}

// held is a log of a process that stands still before its first call, while something else happens.
type held struct {
	sharedlog.Log
	then func()
}

func (h *held) Get(ctx context.Context, key string) (sharedlog.Change, error) {
	h.then()
	return h.Log.Get(ctx, key)
}

// A stopped job is submitted again while it is being deleted: it does not run then, without what is removed of it.
func TestSubmitAmidDelete(t *testing.T) {
	store, log := managed(t)
	_, err := jobs.Submit(t.Context(), store, described(t, 2))
	require.NoError(t, err)
	require.NoError(t, jobs.Stop(t.Context(), store, "job"))
	var again error
	submit := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, again = jobs.Submit(ctx, store, described(t, 2))
	})
	require.NoError(t, jobs.Delete(t.Context(), store, &held{log, submit}, "job"))
	require.ErrorContains(t, again, `job "job" is being deleted`)
	_, err = jobs.Submit(t.Context(), store, described(t, 3))
	require.NoError(t, err)
}

// Two programs submit a job of one name, which was refused before it ran: one of them does, and what it runs stays.
func TestSubmitsOfRefused(t *testing.T) {
	store, log := managed(t)
	for range 30 {
		mark := []byte(`{"id":"other","settings":{"plan":"another one"}}`)
		_, err := log.CompareAndSet(t.Context(), tags.JobKey("job"), nil, mark)
		require.NoError(t, err)
		_, err = jobs.Submit(t.Context(), store, described(t, 2))
		require.ErrorIs(t, err, jobs.ErrRefused)
		_, err = log.CompareAndSet(t.Context(), tags.JobKey("job"), mark, nil)
		require.NoError(t, err)
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() { _, errs[i] = jobs.Submit(t.Context(), store, described(t, 2+i)) })
		}
		wg.Wait()
		v, err := store.Look(t.Context())
		require.NoError(t, err)
		for i, err := range errs {
			if err == nil {
				require.Equal(t, 2+i, v.Jobs["job"].Spec.Parallelism)
			}
		}
		require.True(t, (errs[0] == nil) != (errs[1] == nil), "%v", errs)
		require.NoError(t, jobs.Stop(t.Context(), store, "job"))
		require.NoError(t, jobs.Delete(t.Context(), store, log, "job"))
	}
}

// A worker that the manager has lost still runs a task when its job is stopped and deleted: what it appends has no effect from then on.
func TestDeleteFences(t *testing.T) {
	store, log := managed(t)
	st, err := jobs.Submit(t.Context(), store, described(t, 2))
	require.NoError(t, err)
	owner := sharedlog.Condition{Key: tags.InstanceKey(st.ID, "keys", 0), Value: []byte("an instance")}
	_, err = log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "w", owner)
	record := sharedlog.Record{Tags: []sharedlog.Tag{tags.Task(st.ID, "keys", 0)}}
	require.NoError(t, jobs.Stop(t.Context(), store, "job"))
	_, err = w.Append(record).Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, jobs.Delete(t.Context(), store, log, "job"))
	_, err = w.Append(record).Wait(t.Context())
	require.Equal(t, sharedlog.KindConditionFailed, sharedlog.KindOf(err), "%v", err)
	for _, key := range []string{owner.Key, tags.ManagerKey(st.ID), tags.JobKey("job")} {
		c, err := log.Get(t.Context(), key)
		require.NoError(t, err)
		require.Empty(t, c.Value, key)
	}
}

// counted is a log that calls a function before one of its calls that read or write metadata.
type counted struct {
	sharedlog.Log
	calls atomic.Int64
	at    int64
	then  func()
}

func (c *counted) call() {
	if c.calls.Add(1) == c.at {
		c.then()
	}
}

func (c *counted) Get(ctx context.Context, key string) (sharedlog.Change, error) {
	c.call()
	return c.Log.Get(ctx, key)
}

func (c *counted) CompareAndSet(ctx context.Context, key string, old, new []byte) (sharedlog.Change, error) {
	c.call()
	return c.Log.CompareAndSet(ctx, key, old, new)
}

// A task stands still (SIGSTOP) while it starts, and its job is deleted: wherever each of the two is when the other one runs, the task is
// none then, and has no metadata.
func TestTaskStartsAmidDelete(t *testing.T) {
	store, log := managed(t)
	for at := int64(1); ; at++ {
		st, err := jobs.Submit(t.Context(), store, described(t, 2))
		require.NoError(t, err)
		require.NoError(t, jobs.Stop(t.Context(), store, "job"))
		key := tags.InstanceKey(st.ID, "keys", 0)
		start := func() { _, _, _, _ = fencing.TakeOver(t.Context(), log, tags.ManagerKey(st.ID), key, uint64(at)) }
		deletes := &counted{Log: log, at: at, then: start}
		require.NoError(t, jobs.Delete(t.Context(), store, deletes, "job"))
		start()
		c, err := log.Get(t.Context(), key)
		require.NoError(t, err)
		require.Empty(t, c.Value, "it starts before call %d", at)
		if deletes.calls.Load() < at {
			return
		}
	}
}

// stuck is a log that changes no metadata key of a manager.
type stuck struct{ sharedlog.Log }

func (s stuck) CompareAndSet(ctx context.Context, key string, old, new []byte) (sharedlog.Change, error) {
	if strings.HasPrefix(key, "M/") {
		return sharedlog.Change{}, sharedlog.ErrClosed
	}
	return s.Log.CompareAndSet(ctx, key, old, new)
}

// The key that a task looks for when it starts is removed before all others: a task that starts while those are removed could find it.
func TestManagersKeyIsRemovedFirst(t *testing.T) {
	store, log := managed(t)
	st, err := jobs.Submit(t.Context(), store, described(t, 2))
	require.NoError(t, err)
	key := tags.InstanceKey(st.ID, "keys", 0)
	_, err = log.CompareAndSet(t.Context(), key, nil, []byte("an instance"))
	require.NoError(t, err)
	require.NoError(t, jobs.Stop(t.Context(), store, "job"))
	require.ErrorIs(t, jobs.Delete(t.Context(), store, stuck{log}, "job"), sharedlog.ErrClosed)
	c, err := log.Get(t.Context(), key)
	require.NoError(t, err)
	require.NotEmpty(t, c.Value)
	require.NoError(t, jobs.Delete(t.Context(), store, log, "job"))
}

// A job is deleted before the manager that leads has trimmed it, and the manager ends: the next one removes what the log has of it.
func TestDeletedUnderAnEarlierManager(t *testing.T) {
	store, log, manage := cluster(t)
	first := manage(0)
	st, err := jobs.Submit(t.Context(), store, described(t, 2))
	require.NoError(t, err)
	require.NoError(t, jobs.Stop(t.Context(), store, "job"))
	require.NoError(t, jobs.Delete(t.Context(), store, log, "job"))
	require.NoError(t, first.Close())
	manage(time.Millisecond)
	require.Eventually(t, func() bool { return empty(t, log, tags.Control(st.ID)) }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		v, err := store.Look(t.Context())
		return err == nil && len(v.Deleted) == 0
	}, time.Minute, time.Millisecond, "it is listed no more")
}

// A manager has registered a job, and has ended before it wrote its id into etcd. The job is stopped and deleted: nothing of it is left.
func TestDeleteOfRegistered(t *testing.T) {
	store, log, manage := cluster(t)
	spec := described(t, 2)
	id, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	require.NoError(t, store.Submit(t.Context(), meta.Job{Spec: spec, Want: meta.Stop, Submitted: time.Now()}))
	manage(time.Millisecond)
	require.NoError(t, jobs.Stop(t.Context(), store, "job"))
	require.NoError(t, jobs.Delete(t.Context(), store, log, "job"))
	for _, key := range []string{tags.ManagerKey(id), tags.JobKey("job")} {
		c, err := log.Get(t.Context(), key)
		require.NoError(t, err)
		require.Empty(t, c.Value, key)
	}
	require.Eventually(t, func() bool { return empty(t, log, tags.Control(id)) }, time.Minute, time.Millisecond)
}

// A manager writes about a job while that is deleted: the one that leads removes it.
func TestWrittenAmidDelete(t *testing.T) {
	store, _, manage := cluster(t)
	former, err := store.Campaign(t.Context(), meta.Manager{Name: "former"})
	require.NoError(t, err)
	require.NoError(t, former.Write(t.Context(), []meta.Change{{Job: "job", State: &meta.State{Phase: meta.Stopped}}, {Assign: &meta.Assignment{Job: "job", Attempt: 1}}, {Assign: &meta.Assignment{Job: "none", Attempt: 1}}}))
	former.Resign()
	manage(0)
	require.Eventually(t, func() bool {
		v, err := store.Look(t.Context())
		return err == nil && len(v.States)+len(v.Tasks) == 0
	}, time.Minute, time.Millisecond)
}

// empty reports whether the log has no record of a tag.
func empty(t *testing.T, log sharedlog.Log, tag sharedlog.Tag) bool {
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	_, there, err := log.Last(t.Context(), tag, tail)
	return !there || sharedlog.KindOf(err) == sharedlog.KindTrimmed
}
