package tasks_test

import (
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/observe"
)

// A task of a source ends while a plan is on its way that gives its partition to another task, or another one's to it. Each partition
// stays with the task that had it, and a savepoint has the position and the event time of each.
func TestSavepointOfEndedPartitions(t *testing.T) {
	const last = 2 // the partition of task 1
	for name, r := range map[string]tasks.Rescale{
		"of a task that has ended": {Tasks: 1},
		"to a task that has ended": {Tasks: 2, Owners: []int{0, 1, 1}, Strategy: "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			for parallelism := 1; parallelism <= 3; parallelism++ {
				w := newWorld(9, 30_000, 3)
				dir := t.TempDir()
				file, copied := filepath.Join(dir, "out"), filepath.Join(dir, "copied")
				src := gates{Source: optest.Items(delay, w.parts...)}
				for range w.parts {
					src.of = append(src.of, gate{src.Source, new(atomic.Bool), 2000})
				}
				var once sync.Once
				planning, ended := make(chan struct{}), make(chan struct{})
				o := tasks.Options{Parallelism: 2, Groups: 4, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: storetest.NewMem()}
				o.Observer = func(e observe.Event) {
					if e.Step == observe.RescalePlanning {
						once.Do(func() { close(planning) })
						<-ended
					}
				}
				job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, src), o)
				require.NoError(t, err)
				require.Equal(t, []int{last}, job.Layout().Owned(0, 1))
				require.Eventually(t, func() bool { return items(job, "keys") == 6000 }, time.Minute, time.Millisecond)
				rescaled := make(chan error, 1)
				go func() {
					r.Stage = "keys"
					_, err := job.Rescale(t.Context(), r)
					rescaled <- err
				}()
				<-planning
				src.of[last].open.Store(true)
				require.Eventually(t, func() bool {
					for _, s := range job.Status() {
						if s.Stage == "keys" && s.Task == 1 {
							return s.Ended
						}
					}
					return false
				}, time.Minute, time.Millisecond)
				close(ended)
				require.NoError(t, <-rescaled)
				m, err := job.Savepoint(t.Context(), "one", true)
				require.NoError(t, err)
				require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
				for p, w := range m.Stages[0].Watermarks {
					require.Equal(t, p == last, w == math.MaxInt64, "partition %d is at %d", p, w)
				}
				upTo(t, m, file, copied)

				o.Name, o.From, o.Parallelism, o.Observer = "second", "one", parallelism, nil
				rest := following{src.Source, new(atomic.Bool)} // partition 1 does not let event time pass it
				job, err = tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, copied, rest), o)
				require.NoError(t, err)
				require.NoError(t, job.Wait())
				sameRows(t, w.want, lines(t, copied))
			}
		})
	}
}
