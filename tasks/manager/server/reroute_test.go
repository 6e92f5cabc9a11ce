package server_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/etcdserver"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/manager/server"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// keyed is a manager with a job whose stage by-key has slots, and which no worker runs.
func keyed(t *testing.T) (*meta.Store, *tasks.Spec, sharedlog.Log) {
	log := mem.New(mem.Options{})
	store, spec := keyedOn(t, log, nil)
	return store, spec, log
}

// keyedOn is keyed with a log and a store of snapshots.
func keyedOn(t *testing.T, log sharedlog.Log, saves checkpoint.Store) (*meta.Store, *tasks.Spec) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	etcd, err := etcdserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	t.Cleanup(func() { etcd.Close() })
	store, err := meta.Open(meta.Options{Endpoints: []string{etcd.Addr()}, Cluster: "c"})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	require.NoError(t, store.Check(t.Context()))
	d, err := transport.NewDialer(transport.Options{Cluster: "c"})
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	s := server.Start(server.Options{Log: log, Store: store, Checkpoints: saves, Dialer: d, Logger: quiet, Me: meta.Manager{Name: "m"}, Cluster: meta.Cluster{ID: "id"}})
	t.Cleanup(func() { s.Close() })
	job := operators.NewJob("job")
	in := operators.FromSource(job, "keys", optest.Items(0, []optest.Timed[int64]{}), serde.Int64)
	counted := operators.Process(operators.KeyBy(in, "by-key", serde.Int64, func(v *int64) int64 { return *v }), "count", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
		seen := operators.NewMap(c, "seen", serde.Int64, serde.Int64)
		return operators.Handler[int64]{Item: func(*int64) { *seen.Upsert(0)++ }}
	}).With(serde.Int64)
	operators.ToSink(counted, "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 2, Groups: 8, Slots: 4})
	require.NoError(t, err)
	spec.Program = "a program"
	_, err = jobs.Submit(t.Context(), store, spec)
	require.NoError(t, err)
	return store, spec
}

// The number of a request is above that of each request that had an outcome, also if the clock of the process that asks is behind: otherwise the
// request would have no outcome, and neither would those behind it.
func TestNumbersOfRequestsRise(t *testing.T) {
	store, spec, _ := keyed(t)
	ahead := uint64(time.Now().Add(time.Hour).UnixNano()) // of an asker whose clock is ahead
	require.NoError(t, store.Change(t.Context(), "job", func(j *meta.Job) error {
		j.Rescale = []meta.Rescale{{Stage: "nothing", Number: ahead, Tasks: 1}}
		return nil
	}))
	_, err := jobs.AwaitRescale(t.Context(), store, "job", ahead)
	require.ErrorContains(t, err, "no stage")
	gone := func() bool {
		v, err := store.Look(t.Context())
		return err == nil && len(v.Jobs["job"].Rescale)+len(v.Jobs["job"].Reroute) == 0
	}
	require.Eventually(t, gone, time.Minute, time.Millisecond, "the manager removes a request that has an outcome")
	table, err := route.NewTable(0, 8, 4, nil)
	require.NoError(t, err)
	owners := slices.Repeat([]int{0}, 12) // which leaves task 1 without key groups
	last := ahead
	for range 3 {
		number, err := jobs.Reroute(t.Context(), store, "job", tasks.Reroute{Stage: "by-key", Owners: owners}, table)
		require.NoError(t, err)
		require.Greater(t, number, last)
		_, err = jobs.AwaitReroute(t.Context(), store, "job", number)
		require.ErrorContains(t, err, "task 1 owns no key group")
		require.Eventually(t, gone, time.Minute, time.Millisecond)
		last = number
		number, err = jobs.Rescale(t.Context(), store, "job", tasks.Rescale{Stage: "by-key", Tasks: 2, Have: owners})
		require.NoError(t, err)
		require.Greater(t, number, last)
		_, err = jobs.AwaitRescale(t.Context(), store, "job", number)
		require.ErrorContains(t, err, rescale.ErrChanged.Error())
		require.Eventually(t, gone, time.Minute, time.Millisecond)
		last = number
	}
	require.NoError(t, spec.CheckReroute(tasks.Reroute{Stage: "by-key"}))
}

// A request that cannot be read, or carried out, has an outcome, and so has another one beside it. Of two askers at once one is
// refused.
func TestRequestsThatCannotBe(t *testing.T) {
	store, _, _ := keyed(t)
	require.NoError(t, store.Change(t.Context(), "job", func(j *meta.Job) error {
		table, err := route.NewTable(3, 8, 4, nil)
		if err == nil {
			b := table.Append(nil)
			j.Reroute = []meta.Reroute{{Stage: "by-key", Number: 7, Table: b[:len(b)-1]}, {Stage: "keys", Number: 8, Table: b}, {Stage: "out", Number: 9}}
		}
		return err
	}))
	for number, why := range map[uint64]string{7: "are no table", 8: "reads no stream with slots", 9: "are no table"} {
		_, err := jobs.AwaitReroute(t.Context(), store, "job", number)
		require.ErrorContains(t, err, why)
	}
	table, err := route.NewTable(0, 8, 4, nil)
	require.NoError(t, err)
	have := []int{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1}
	r := tasks.Reroute{Stage: "by-key", Places: []route.Place{{Part: route.Part{Group: 0, N: 8}, Slot: 8}}, Owners: have, Have: have}
	_, err = jobs.Reroute(t.Context(), store, "job", r, table) // no task adopts it
	require.NoError(t, err)
	_, err = jobs.Reroute(t.Context(), store, "job", r, table)
	require.ErrorIs(t, err, rescale.ErrChanged)
	_, err = jobs.Rescale(t.Context(), store, "job", tasks.Rescale{Stage: "by-key", Tasks: 2, Have: have})
	require.ErrorIs(t, err, rescale.ErrChanged)
	_, err = jobs.Reroute(t.Context(), store, "job", tasks.Reroute{Stage: "keys"}, table)
	require.ErrorContains(t, err, "reads no stream with slots: submit the job with some")
}

// A job that was deleted, and submitted again, has neither the outcomes of the one before, nor their numbers: a request whose number is
// lower, because the clock of the process that asks is behind, has an outcome of its own.
func TestSubmittedAgainHasNoOutcomes(t *testing.T) {
	store, spec, log := keyed(t)
	ask := func(number uint64, stage, why string) {
		require.NoError(t, store.Change(t.Context(), "job", func(j *meta.Job) error {
			j.Rescale = []meta.Rescale{{Stage: stage, Number: number, Tasks: 1}}
			j.Reroute = []meta.Reroute{{Stage: stage, Number: number}}
			return nil
		}))
		_, err := jobs.AwaitRescale(t.Context(), store, "job", number)
		require.ErrorContains(t, err, why)
		_, err = jobs.AwaitReroute(t.Context(), store, "job", number)
		require.ErrorContains(t, err, "are no table")
	}
	ask(1000, "nothing", `no stage "nothing"`)
	require.NoError(t, jobs.Stop(t.Context(), store, "job"))
	require.NoError(t, jobs.Delete(t.Context(), store, log, "job"))
	_, err := jobs.Submit(t.Context(), store, spec)
	require.NoError(t, err)
	v, err := store.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, meta.Running, v.States["job"].Phase)
	require.Empty(t, v.States["job"].Rescaled)
	require.Empty(t, v.States["job"].Rerouted)
	ask(7, "nothing", `no stage "nothing"`)

	// The manager sees only that there is another job.
	require.NoError(t, store.Change(t.Context(), "job", func(j *meta.Job) error {
		j.Submitted, j.Rescale, j.Reroute = j.Submitted.Add(time.Second), nil, nil
		return nil
	}))
	require.Eventually(t, func() bool {
		v, err := store.Look(t.Context())
		st := v.States["job"]
		return err == nil && st.Phase == meta.Running && len(st.Rescaled)+len(st.Rerouted) == 0
	}, time.Minute, time.Millisecond)
	ask(5, "nothing", `no stage "nothing"`)
}

// counted is a log that counts the readers that are open.
type counted struct {
	sharedlog.Log
	open atomic.Int64
}

func (c *counted) NewReader(o sharedlog.ReaderOptions) (sharedlog.Reader, error) {
	r, err := c.Log.NewReader(o)
	if err == nil {
		c.open.Add(1)
		r = &countedReader{Reader: r, close: sync.OnceFunc(func() { c.open.Add(-1) })}
	}
	return r, err
}

type countedReader struct {
	sharedlog.Reader
	close func()
}

func (r *countedReader) Close() error {
	r.close()
	return r.Reader.Close()
}

// A savepoint waits until the tasks have adopted a table, which none does. It waits no more when its request is withdrawn.
func TestWithdrawnSavepointWaitsNoMore(t *testing.T) {
	log := &counted{Log: mem.New(mem.Options{})}
	store, _ := keyedOn(t, log, storetest.NewMem())
	table, err := route.NewTable(0, 8, 4, nil)
	require.NoError(t, err)
	_, err = jobs.Reroute(t.Context(), store, "job", tasks.Reroute{Stage: "by-key", Places: []route.Place{{Part: route.Part{Group: 0, N: 8}, Slot: 8}}}, table)
	require.NoError(t, err)
	planned := func() bool {
		v, err := store.Look(t.Context())
		require.NoError(t, err)
		l, err := v.Jobs["job"].Spec.Table(t.Context(), log, v.States["job"].ID, 1)
		return err == nil && l.Epoch == 1
	}
	eventually(t, planned)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan error, 1)
		go func() {
			_, err := jobs.Savepoint(ctx, store, "job", "one", false)
			asked <- err
		}()
		eventually(t, func() bool {
			v, err := store.Look(t.Context())
			return err == nil && v.Jobs["job"].Savepoint != nil
		})
		eventually(t, func() bool { return log.open.Load() == 1 })
		cancel()
		require.ErrorIs(t, <-asked, context.Canceled)
		require.NoError(t, jobs.Stop(t.Context(), store, "job"))
		eventually(t, func() bool { return log.open.Load() == 0 })
		v, err := store.Look(t.Context())
		require.NoError(t, err)
		_, err = jobs.Submit(t.Context(), store, v.Jobs["job"].Spec)
		require.NoError(t, err)
	}
}
