package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/etcdserver"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// Who has seen the outcome of a request may ask again at once: the request stays in the job until the manager removes it, which
// is later. A request that has no outcome is in the way.
func TestOutcomesBarNoRequest(t *testing.T) {
	etcd, err := etcdserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	t.Cleanup(func() { etcd.Close() })
	store, err := meta.Open(meta.Options{Endpoints: []string{etcd.Addr()}, Cluster: "c"})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
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
	require.NoError(t, store.Submit(t.Context(), meta.Job{Spec: spec, Want: meta.Run, Submitted: time.Now()}))
	leader, err := store.Campaign(t.Context(), meta.Manager{Name: "m"})
	require.NoError(t, err)
	_, err = leader.Begin(t.Context(), meta.Cluster{ID: "id"})
	require.NoError(t, err)

	rescaled, rerouted := meta.Rescaled{Number: 7}, meta.Rerouted{Number: 8}
	rescaled.Stage, rerouted.Stage = "by-key", "by-key"
	answered := []struct {
		rescaled []meta.Rescaled
		rerouted []meta.Rerouted
		free     bool
	}{
		{nil, nil, false},
		{[]meta.Rescaled{rescaled}, nil, false},
		{nil, []meta.Rerouted{rerouted}, false},
		{[]meta.Rescaled{rescaled}, []meta.Rerouted{rerouted}, true},
	}
	table, err := route.NewTable(0, 8, 4, nil)
	require.NoError(t, err)
	have := []int{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1}
	ask := map[string]func() error{
		"rescale": func() error {
			_, err := jobs.Rescale(t.Context(), store, "job", tasks.Rescale{Stage: "by-key", Tasks: 2, Have: have})
			return err
		},
		"reroute": func() error {
			_, err := jobs.Reroute(t.Context(), store, "job", tasks.Reroute{Stage: "by-key", Owners: have, Have: have}, table)
			return err
		},
	}
	for _, a := range answered {
		state := meta.State{Phase: meta.Running, Rescaled: a.rescaled, Rerouted: a.rerouted}
		require.NoError(t, leader.Write(t.Context(), []meta.Change{{Job: "job", State: &state}}))
		for what, f := range ask {
			require.NoError(t, store.Change(t.Context(), "job", func(j *meta.Job) error {
				j.Rescale = []meta.Rescale{{Stage: "by-key", Number: 7, Tasks: 2}, {Stage: "another", Number: 9}}
				j.Reroute = []meta.Reroute{{Stage: "by-key", Number: 8}}
				return nil
			}))
			if err := f(); a.free {
				require.NoError(t, err, what)
			} else {
				require.ErrorIs(t, err, rescale.ErrChanged, what)
			}
		}
	}
}
