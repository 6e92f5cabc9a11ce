package operators_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// quiet is a source whose partition 0 has one item a ms and whose others have nothing, or with one their
// negative number: they are idle, until done returns true. Partition 0 waits then as well.
type quiet struct {
	items, partitions int64
	one               bool
	done              func() bool
}

type quietPart struct {
	*quiet
	id, at int64
}

func (s *quiet) Partitions() int { return int(s.partitions) }
func (s *quiet) Open(p int) (operators.Partition[int64], error) {
	return &quietPart{quiet: s, id: int64(p)}, nil
}

func (p *quietPart) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	switch {
	case p.id == 0 && p.at < p.items:
		for ; most > 0 && p.at < p.items; most, p.at = most-1, p.at+1 {
			b.Append(p.at, p.at)
		}
		return operators.Status{State: operators.More}, nil
	case p.id > 0 && p.one && p.at == 0:
		b.Append(-p.id, 0)
		p.at++
		return operators.Status{State: operators.More}, nil
	case p.done():
		return operators.Status{State: operators.Ended}, nil
	case p.id == 0:
		return operators.Status{State: operators.Waiting, Due: now + 5}, nil
	}
	return operators.Status{State: operators.Idle}, nil
}

func (p *quietPart) Watermark() int64 {
	if p.id == 0 && p.at > 0 {
		return p.at
	}
	return operators.MinTime
}

func (p *quietPart) Position(dst []byte) []byte { return serde.AppendInt64(dst, p.at) }
func (p *quietPart) Seek(pos []byte) error {
	r := serde.NewReader(pos)
	p.at = r.Int64()
	return r.Err()
}
func (p *quietPart) Close() error { return nil }

// An idle partition does not hold event time, whether it has a task of its own or shares one:
// windows close while it is idle.
func TestIdlePartitionHoldsNothing(t *testing.T) {
	for _, partitions := range []int64{1, 2, 3} {
		for _, parallelism := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%d partitions, %d tasks", partitions, parallelism), func(t *testing.T) {
				var closed int
				src := &quiet{items: 90_500, partitions: partitions}
				src.done = func() bool { return closed == 90 } // otherwise the run never ends
				job := operators.NewJob("idle")
				in := operators.KeyBy(operators.FromSource(job, "in", src, serde.Int64), "k", serde.Bool, func(*int64) bool { return true })
				var windows []int64
				operators.ToSink(operators.CountWindows(in, operators.Tumbling(time.Second)), "out",
					operators.FuncSink(func(b *operators.Batch[operators.KV[bool, operators.Windowed[int64]]]) error {
						for i := range b.Items {
							windows = append(windows, b.Items[i].Value.End)
						}
						closed = len(windows)
						return nil
					}))
				plan, err := job.Plan()
				require.NoError(t, err)
				report, err := optest.Run(plan, optest.Options{Parallelism: parallelism, MaxSteps: 200_000})
				require.NoError(t, err)
				require.Len(t, windows, 91)
				require.Zero(t, report.Behind)
			})
		}
	}
}

// Operators in the stage of the source have the event time of their task's partitions: if all of them are idle,
// a window stays open until one of them continues or ends, although other tasks are far ahead.
func TestIdleTaskStandsStill(t *testing.T) {
	for _, parallelism := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d tasks", parallelism), func(t *testing.T) {
			closed, came := 0, -1
			src := &quiet{items: 20_500, partitions: 2, one: true}
			src.done = func() bool { return closed == 20 }
			job := operators.NewJob("idle")
			in := operators.KeyAhead(operators.FromSource(job, "in", src, serde.Int64), serde.Bool, func(v *int64) bool { return *v < 0 }, func(k *bool) int {
				if *k {
					return 1
				}
				return 0
			})
			operators.ToSink(operators.CountWindows(in, operators.Tumbling(time.Second)), "out",
				operators.FuncSink(func(b *operators.Batch[operators.KV[bool, operators.Windowed[int64]]]) error {
					for i := range b.Items {
						if b.Items[i].Key {
							came = closed
						} else {
							closed++
						}
					}
					return nil
				}))
			plan, err := job.Plan()
			require.NoError(t, err)
			_, err = optest.Run(plan, optest.Options{Parallelism: parallelism, MaxSteps: 200_000})
			require.NoError(t, err)
			require.Equal(t, 21, closed)
			if parallelism == 1 {
				require.Less(t, came, 5, "it shares a task with a partition that is not idle")
			} else {
				require.GreaterOrEqual(t, came, 20)
			}
		})
	}
}
