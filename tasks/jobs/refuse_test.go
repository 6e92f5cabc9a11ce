package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/meta"
)

// The partitions of a source move when they are asked to, and by no policy.
func TestPoliciesLeaveSources(t *testing.T) {
	job := operators.NewJob("spread")
	none := []optest.Timed[int64]{}
	in := operators.FromSource(job, "in", optest.Items(0, none, none), serde.Int64)
	byKey := operators.KeyBy(in, "by-key", serde.Int64, func(v *int64) int64 { return *v })
	operators.ToSink(byKey, "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 2})
	require.NoError(t, err)
	v := &meta.View{Jobs: map[string]meta.Job{"spread": {Spec: spec}}}
	for stage, refused := range map[string]string{
		"in":                "stage in cannot be rescaled by a policy: it reads a source, whose partitions move only on request; choose a stage behind it",
		plan.Stages[1].Name: "",
	} {
		errs := []error{
			CheckAutoscale(spec, tasks.Autoscale{Stage: stage, Min: 1, Max: 2}),
			allowed(v, "spread", &tasks.Balance{Stage: stage, Dispatch: "weight"}),
		}
		for _, err := range errs {
			if refused == "" {
				require.NoError(t, err)
				continue
			}
			require.ErrorContains(t, err, refused)
		}
		require.NoError(t, spec.CheckRescale(tasks.Rescale{Stage: stage, Tasks: 1}))
	}
	own := tasks.Balance{Stage: plan.Stages[1].Name, Dispatch: tasks.BalanceOwn, Planner: func(l *tasks.BalanceLoad) ([]int, error) { return l.Owners, nil }}
	require.ErrorContains(t, allowed(v, "spread", &own), "the manager, which balances jobs on workers, is not the job's program and has no planner of it")
}
