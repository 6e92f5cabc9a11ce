package manager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
)

// During an upgrade there are workers of two formats. Those of the newer one run all jobs, those of
// the older one only the jobs that a program of theirs has described.
func TestFormatsOfWorkers(t *testing.T) {
	now := tasks.Format
	job := Job{Name: "q", Program: "p", Format: now}
	before := Job{Name: "q", Program: "p", Format: "1"}
	for _, c := range []struct {
		worker string
		job    *Job
		why    string
	}{
		{now, &job, ""},
		{now, &before, ""},
		{"1", &before, ""},
		{"1", &job, "is of format 1, the job is of " + now + ": use programs of one release"},
		{"7", &job, ""},
	} {
		w := Worker{Name: "w", Program: "p", Format: c.worker}
		require.Equal(t, c.why, w.declines(c.job, "keys"), "worker %s, job %s", c.worker, c.job.Format)
	}
}
