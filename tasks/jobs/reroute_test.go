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

// led returns a store in which a job whose stage by-key has slots is submitted, and who leads as its manager.
func led(t *testing.T) (*meta.Store, *tasks.Spec, *meta.Leader) {
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
	return store, spec, leader
}

// Who has seen the outcome of a request may ask again at once: the request stays in the job until the manager removes it, which
// is later. A request that has no outcome is in the way.
func TestOutcomesBarNoRequest(t *testing.T) {
	store, _, leader := led(t)
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

// AwaitRescale and AwaitReroute return an error if the job stops before the request has an outcome. The request is not carried out
// when the job is submitted again, and its number is not used again.
func TestRequestsEndWithTheJob(t *testing.T) {
	store, spec, leader := led(t)
	require.NoError(t, store.Change(t.Context(), "job", func(j *meta.Job) error {
		j.Rescale, j.Reroute, j.Newest = []meta.Rescale{{Stage: "by-key", Number: 7, Tasks: 3}}, []meta.Reroute{{Stage: "by-key", Number: 8}}, 8
		j.Auto, j.Want = []tasks.Autoscale{{Stage: "by-key"}}, meta.Stop
		return nil
	}))
	require.NoError(t, leader.Write(t.Context(), []meta.Change{{Job: "job", State: &meta.State{Phase: meta.Stopped}}}))
	_, err := jobs.AwaitRescale(t.Context(), store, "job", 7)
	require.ErrorContains(t, err, "is stopped: its key groups move no more")
	_, err = jobs.AwaitReroute(t.Context(), store, "job", 8)
	require.ErrorContains(t, err, "is stopped: its routing tables stay")

	resumed := make(chan error, 1)
	go func() {
		_, err := jobs.Submit(t.Context(), store, spec)
		resumed <- err
	}()
	require.Eventually(t, func() bool {
		v, err := store.Look(t.Context())
		return err == nil && v.Jobs["job"].Want == meta.Run
	}, time.Minute, time.Millisecond)
	v, err := store.Look(t.Context())
	require.NoError(t, err)
	j := v.Jobs["job"]
	require.Empty(t, j.Rescale)
	require.Empty(t, j.Reroute)
	require.Len(t, j.Auto, 1, "that remains")
	require.Greater(t, j.NextNumber(&meta.State{}, 1), uint64(8))
	require.NoError(t, leader.Write(t.Context(), []meta.Change{{Job: "job", State: &meta.State{Phase: meta.Running}}}))
	require.NoError(t, <-resumed)
}

// A job that was refused before it ever ran, for a savepoint that does not exist, say, does not keep its name: the next one with other
// settings takes its place. One that is in the log keeps it.
func TestRefusedJobsAreReplaced(t *testing.T) {
	store, spec, leader := led(t)
	other := *spec
	other.Protocol = "marker"
	refused := func(id string) {
		state := meta.State{ID: id, Phase: meta.Refused, Detail: "there is no such savepoint"}
		require.NoError(t, leader.Write(t.Context(), []meta.Change{{Job: "job", State: &state}}))
	}
	refused("an id")
	_, err := jobs.Submit(t.Context(), store, &other)
	require.ErrorContains(t, err, "tailrace job delete job")
	refused("")
	before, err := store.Look(t.Context())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := jobs.Submit(t.Context(), store, &other)
		ended <- err
	}()
	require.Eventually(t, func() bool {
		v, err := store.Look(t.Context())
		return err == nil && v.Jobs["job"].Spec != nil && v.Jobs["job"].Spec.Protocol == "marker"
	}, time.Minute, time.Millisecond)
	v, err := store.Look(t.Context())
	require.NoError(t, err)
	require.Empty(t, v.States, "what was said of the other one")
	require.True(t, v.Jobs["job"].Submitted.After(before.Jobs["job"].Submitted))
	require.NoError(t, leader.Write(t.Context(), []meta.Change{{Job: "job", State: &meta.State{Phase: meta.Running}}}))
	require.NoError(t, <-ended)
}
