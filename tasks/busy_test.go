package tasks_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// scheduled is a source of one partition whose item k comes at due(k), in ms of the clock.
type scheduled struct {
	operators.Source[int64]
	due func(k int) int64
}

func (s scheduled) Open(p int) (operators.Partition[int64], error) {
	part, err := s.Source.Open(p)
	return &scheduledPartition{Partition: part, due: s.due}, err
}

type scheduledPartition struct {
	operators.Partition[int64]
	due  func(k int) int64
	next int
}

func (p *scheduledPartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	n := 0
	for n < most && p.due(p.next+n) <= now {
		n++
	}
	if n == 0 {
		return operators.Status{State: operators.Waiting, Due: p.due(p.next)}, nil
	}
	before := b.Len()
	st, err := p.Partition.Read(b, n, now)
	p.next += b.Len() - before
	return st, err
}

// working is a job that counts n keys over 100 ms, and spends some time on each item in the stage
// by-key. In a bubble of package synctest it is busy for exactly that time.
func working(t *testing.T, n int, due func(k int) int64, work time.Duration, file string) (plan *operators.Plan, want []string) {
	var items []optest.Timed[int64]
	counts := map[[2]int64]int{}
	for i := range n {
		at, key := int64(i), int64(i*7919%251)
		items = append(items, optest.At(at, key))
		counts[[2]int64{at / 100, key}]++
	}
	for k, c := range counts {
		want = append(want, fmt.Sprintf("%d %d %d", k[0]*100, k[1], c))
	}
	slices.Sort(want)
	job := operators.NewJob("working")
	keys := operators.FromSource(job, "keys", scheduled{optest.Items(0, items), due}, serde.Int64)
	byKey := operators.KeyBy(keys, "by-key", serde.Int64, func(k *int64) int64 { return *k })
	worked := operators.MapValues(byKey, func(_, v *int64) int64 {
		time.Sleep(work)
		return *v
	})
	operators.ToSink(operators.CountWindows(worked, operators.Tumbling(100*time.Millisecond)), "out",
		operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
			return fmt.Appendf(dst, "%d %d %d\n", c.Value.Start, c.Key, c.Value.Value)
		}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan, want
}

// A task shows for how long it has slept, up to where it has processed its input, and how many items
// each key group has had.
func TestBusy(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn", "aligned"} {
		t.Run(protocol, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now().UnixMilli()
				plan, want := working(t, 1000, func(k int) int64 { return begin + int64(k)*50 }, 10*time.Millisecond, file)
				log := mem.New(mem.Options{})
				job, err := tasks.Start(t.Context(), log, plan, tasks.Options{Parallelism: 1, Groups: 8, Logger: quiet, Protocol: protocol, Checkpoints: storetest.NewMem()})
				require.NoError(t, err)
				stage := func() (s tasks.Status) {
					for _, s = range job.Status() {
						if s.Stage == "by-key" {
							break
						}
					}
					return s
				}
				time.Sleep(10 * time.Second)
				a := stage()
				time.Sleep(20 * time.Second)
				b := stage()
				tail, err := log.Tail(t.Context())
				require.NoError(t, err)
				require.InDelta(t, 0.8*20_000, b.SleptMS-a.SleptMS, 200, "20 items a second of 10 ms")
				time.Sleep(300 * time.Millisecond)
				require.GreaterOrEqual(t, stage().Through, tail)
				sum := uint64(0)
				for _, n := range b.Load {
					sum += n
				}
				require.Equal(t, b.ItemsIn, sum)
				require.Len(t, b.Load, 8)
				require.NoError(t, job.Wait())
				sameRows(t, want, lines(t, file))
			})
		})
	}
}
