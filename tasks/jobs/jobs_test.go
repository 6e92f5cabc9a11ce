package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
)

// A job says which grain each stage with Auto has, why, and since when, also if another manager has switched it.
func TestPolicies(t *testing.T) {
	at := time.Date(2026, 11, 28, 13, 14, 15, 0, time.UTC)
	o := &Overview{
		View: meta.View{
			Jobs: map[string]meta.Job{"job": {Spec: &tasks.Spec{Plan: &exec.Plan{}}}},
			States: map[string]meta.State{"job": {Switched: []meta.Switched{
				{Stage: "sums", Switched: tasks.Switched{At: at, Grain: "key", Delay: 8, Why: "the task's items are 4096 ms out of order, those of a key 4 ms"}},
			}}},
		},
		Manager: manager.Status{Jobs: []manager.JobStatus{{Name: "job", Autoscale: []string{"autoscale x"}, Balance: []string{"balance y"}, Grains: []tasks.Chosen{
			{Stage: "counts", Grain: "task", Why: "there is no sample yet", Error: "the log is full"},
			{Stage: "sums", Grain: "key", Delay: 8, Why: "too few samples (3 of 1000)"},
		}}}},
	}
	j := o.Jobs()[0]
	require.Equal(t, []string{
		"autoscale x", "balance y",
		"grain counts: the task's clock, there is no sample yet; not switched: the log is full",
		"grain sums: a clock for each key, delay 8 ms, too few samples (3 of 1000); newest switch: a clock for each key, delay 8 ms since 13:14:15: the task's items are 4096 ms out of order, those of a key 4 ms",
	}, j.Policies())
}
