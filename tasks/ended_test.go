package tasks_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/observe"
)

// After a job has ended, each operation on it returns ErrEnded, under each protocol: also where a
// job that runs would refuse it for another reason.
func TestErrEnded(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "unsafe"} {
		for name, do := range map[string]func(*tasks.Job) error{
			"Fail": func(j *tasks.Job) error {
				_, err := j.Fail(t.Context(), 0, 0)
				return err
			},
			"Savepoint": func(j *tasks.Job) error {
				_, err := j.Savepoint(t.Context(), "s", true)
				return err
			},
			"Rescale": func(j *tasks.Job) error {
				_, err := j.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2})
				return err
			},
		} {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), simplePlan(t, serde.Int64), tasks.Options{
					Parallelism: 1, Groups: 1, Logger: quiet, Protocol: protocol, Checkpoints: storetest.NewMem(),
				})
				require.NoError(t, err)
				require.NoError(t, job.Wait())
				require.ErrorIs(t, do(job), tasks.ErrEnded)
			})
		}
	}
}

// A job that is stopped while key groups move ends the call of Rescale with ErrEnded, unless the groups
// have moved before.
func TestErrEndedMeanwhile(t *testing.T) {
	for _, at := range []observe.Step{observe.RescaleSilent, observe.RescalePlanned, observe.RescaleReleasing} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			reached, once := make(chan struct{}), new(sync.Once)
			job, _ := gated(t, tasks.Options{Observer: func(e observe.Event) {
				if e.Step == at {
					once.Do(func() { close(reached) })
				}
			}})
			go func() {
				<-reached
				job.Stop()
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := job.Rescale(ctx, tasks.Rescale{Stage: "by-key", Tasks: 4})
			if err == nil { // it was done before the job was stopped
				require.Equal(t, 4, job.Layout().Stages[2].Tasks)
				return
			}
			require.ErrorIs(t, err, tasks.ErrEnded)
		})
	}
}
