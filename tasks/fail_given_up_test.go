package tasks_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// heldSource is a source whose first read calls read, and whose others do not.
type heldSource struct {
	operators.Source[int64]
	read func()
}

func (s heldSource) Open(p int) (operators.Partition[int64], error) {
	part, err := s.Source.Open(p)
	return heldPartition{part, s.read}, err
}

type heldPartition struct {
	operators.Partition[int64]
	read func()
}

func (p heldPartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	p.read()
	return p.Partition.Read(b, most, now)
}

// The caller of Fail gives up, before the task is killed or while the task ends: the job runs on, with another instance if the task was
// killed, and writes all rows once.
func TestFailGivenUp(t *testing.T) {
	for _, protocol := range []string{"fused", "aligned"} {
		for name, before := range map[string]bool{"before": true, "while it ends": false} {
			t.Run(protocol+", "+name, func(t *testing.T) {
				t.Parallel()
				reads, goes := make(chan struct{}), make(chan struct{})
				source := heldSource{optest.Items(0, []optest.Timed[int64]{optest.At[int64](1, 1), optest.At[int64](2, 2)}), sync.OnceFunc(func() {
					close(reads)
					<-goes
				})}
				j := operators.NewJob("job")
				out := optest.Collect(func(v *int64) int64 { return *v })
				operators.ToSink(operators.FromSource(j, "keys", source, serde.Int64), "out", out)
				plan, err := j.Plan()
				require.NoError(t, err)
				job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 1, Groups: 1, Logger: quiet, Protocol: protocol, Checkpoints: storetest.NewMem(), CommitInterval: time.Millisecond})
				require.NoError(t, err)
				t.Cleanup(job.Stop)
				<-reads
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if before {
					cancel()
				} else {
					time.AfterFunc(50*time.Millisecond, cancel)
				}
				_, err = job.Fail(ctx, 0, 0)
				require.ErrorIs(t, err, context.Canceled)
				close(goes)
				require.NoError(t, job.Wait())
				require.Equal(t, []int64{1, 2}, out.Rows)
			})
		}
	}
}
