package server_test

import (
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/etcdserver"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/manager/server"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/tags"
)

func spec(t *testing.T) *tasks.Spec {
	job := operators.NewJob("job")
	keys := operators.FromSource(job, "keys", optest.Items(0, []optest.Timed[int64]{optest.At[int64](1, 1)}), serde.Int64)
	operators.ToSink(keys, "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	s, err := tasks.Describe(plan, tasks.Options{Parallelism: 2, Groups: 8})
	require.NoError(t, err)
	s.Program = "a program"
	return s
}

// Many goroutines ask a manager for its status while it begins to lead, works, and ends. Each gets
// an answer: what the manager knows while it leads, and an empty one otherwise.
func TestStatus(t *testing.T) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	etcd, err := etcdserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	defer etcd.Close()
	store, err := meta.Open(meta.Options{Endpoints: []string{etcd.Addr()}, Cluster: "c"})
	require.NoError(t, err)
	defer store.Close()
	require.NoError(t, store.Check(t.Context()))
	d, err := transport.NewDialer(transport.Options{Cluster: "c"})
	require.NoError(t, err)
	defer d.Close()
	log := mem.New(mem.Options{})
	start := func(name string) *server.Server {
		return server.Start(server.Options{Log: log, Store: store, Dialer: d, Logger: quiet, Me: meta.Manager{Name: name}, Cluster: meta.Cluster{ID: "id"}})
	}
	first := start("first")
	require.Eventually(t, first.Leads, time.Minute, time.Millisecond)
	second := start("second")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	for _, s := range []*server.Server{first, second, first, second} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.Status()
				}
			}
		})
	}
	waits := func(s *server.Server) func() bool {
		return func() bool {
			st := s.Status()
			return len(st.Jobs) == 1 && st.Jobs[0].Phase == manager.Running && len(st.Jobs[0].Tasks) > 0 && st.Jobs[0].Tasks[0].State == "waiting"
		}
	}
	_, err = jobs.Submit(t.Context(), store, spec(t))
	require.NoError(t, err)
	require.Eventually(t, waits(first), time.Minute, time.Millisecond)
	require.Empty(t, second.Status(), "it does not lead")
	require.NoError(t, first.Close())
	require.Empty(t, first.Status(), "it manager no longer leads")
	require.Eventually(t, waits(second), time.Minute, time.Millisecond)
	require.NoError(t, jobs.Stop(t.Context(), store, "job"))
	require.NoError(t, jobs.Delete(t.Context(), store, log, "job"))
	require.Eventually(t, func() bool { return len(second.Status().Jobs) == 0 }, time.Minute, time.Millisecond)
	end()
	require.NoError(t, second.Close())
}

// A savepoint is aborted, because its job is stopped or its manager ends: the hold on the job's
// change logs is released.
func TestSavepointAbandoned(t *testing.T) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	etcd, err := etcdserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	defer etcd.Close()
	store, err := meta.Open(meta.Options{Endpoints: []string{etcd.Addr()}, Cluster: "c"})
	require.NoError(t, err)
	defer store.Close()
	require.NoError(t, store.Check(t.Context()))
	d, err := transport.NewDialer(transport.Options{Cluster: "c"})
	require.NoError(t, err)
	defer d.Close()
	log := mem.New(mem.Options{})
	s := server.Start(server.Options{
		Log: log, Store: store, Dialer: d, Logger: quiet, Me: meta.Manager{Name: "m"}, Cluster: meta.Cluster{ID: "id"}, Checkpoints: storetest.NewMem(),
	})
	job := spec(t)
	id := ""
	held := func() bool {
		c, err := log.Get(t.Context(), tags.HoldsKey(id))
		return err == nil && len(c.Value) > 0
	}
	begin := func(name string, number uint64) {
		require.Eventually(t, func() bool {
			v, err := store.Look(t.Context())
			id = v.States["job"].ID
			return err == nil && v.States["job"].Phase == meta.Running
		}, time.Minute, time.Millisecond)
		require.False(t, held())
		require.NoError(t, store.Change(t.Context(), "job", func(j *meta.Job) error {
			j.Savepoint = &meta.Savepoint{Name: name, Number: number}
			return nil
		}))
		require.Eventually(t, func() bool {
			v, err := store.Look(t.Context())
			return err == nil && v.States["job"].Phase == meta.Draining
		}, time.Minute, time.Millisecond)
		require.True(t, held())
	}
	_, err = jobs.Submit(t.Context(), store, job)
	require.NoError(t, err)
	begin("one", 1)
	require.NoError(t, store.Change(t.Context(), "job", func(j *meta.Job) error {
		j.Want, j.Savepoint = meta.Stop, nil
		return nil
	}))
	require.Eventually(t, func() bool { return !held() }, time.Minute, time.Millisecond)
	require.NoError(t, store.Change(t.Context(), "job", func(j *meta.Job) error { j.Want = meta.Run; return nil }))
	begin("two", 2)
	require.NoError(t, s.Close())
	require.False(t, held())
}
