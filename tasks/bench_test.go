package tasks_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
)

// numbers is a source of 0, 1, 2 … n-1 that is then silent.
type numbers int64

func (numbers) Partitions() int { return 1 }

func (n numbers) Open(int) (operators.Partition[int64], error) {
	return &numbersPartition{end: int64(n)}, nil
}

type numbersPartition struct{ next, end int64 }

func (p *numbersPartition) Read(b *operators.Batch[int64], most int, _ int64) (operators.Status, error) {
	for range most {
		if p.next == p.end {
			return operators.Status{State: operators.Idle}, nil
		}
		b.Append(p.next, p.next)
		p.next++
	}
	return operators.Status{State: operators.More}, nil
}

func (p *numbersPartition) Watermark() int64           { return p.next - 1 }
func (p *numbersPartition) Position(dst []byte) []byte { return binary.AppendVarint(dst, p.next) }
func (p *numbersPartition) Close() error               { return nil }
func (p *numbersPartition) Seek(b []byte) error {
	p.next, _ = binary.Varint(b)
	return nil
}

// counting is a job that counts n numbers by their remainder.
func counting(tb testing.TB, n, keys int64) *operators.Plan {
	job := operators.NewJob("counting")
	in := operators.FromSource(job, "numbers", numbers(n), serde.Int64)
	counts := operators.Count(operators.KeyBy(in, "keyed", serde.Int64, func(v *int64) int64 { return *v % keys }))
	operators.ToSink(counts, "out", operators.FuncSink(func(*operators.Batch[operators.Change[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(tb, err)
	return plan
}

// until polls a job until the status of its tasks satisfies f.
func until(tb testing.TB, job *tasks.Job, f func(s tasks.Status) bool) {
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for {
		all := true
		for _, s := range job.Status() {
			all = all && f(s)
		}
		if all {
			return
		}
		select {
		case <-job.Done():
			require.NoError(tb, job.Wait())
			require.Fail(tb, "the job ended")
		case <-tick.C:
		}
	}
}

func stop(tb testing.TB, job *tasks.Job) {
	job.Stop()
	require.ErrorIs(tb, job.Wait(), context.Canceled)
}

func benchLog(b *testing.B) sharedlog.Log {
	log, err := embedded.Open(b.TempDir(), embedded.Options{Logger: quiet})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, log.Close()) })
	return log
}

// BenchmarkRecovery repeatedly starts a job of one task a stage, on state of a million keys and a
// change log of two million entries.
func BenchmarkRecovery(b *testing.B) {
	const n, keys = 2_000_000, 1_000_000
	log := benchLog(b)
	o := tasks.Options{Parallelism: 1, CommitInterval: 10 * time.Millisecond, Logger: quiet}
	start := func() *tasks.Job {
		job, err := tasks.Start(b.Context(), log, counting(b, n, keys), o)
		require.NoError(b, err)
		return job
	}
	job := start()
	until(b, job, func(s tasks.Status) bool { return s.Stage != "out" || s.ItemsIn == n })
	stop(b, job)
	entries := uint64(0)
	for b.Loop() {
		job := start()
		until(b, job, func(s tasks.Status) bool { return s.Commits > 0 })
		b.StopTimer()
		for _, s := range job.Status() {
			entries += s.Replayed
		}
		stop(b, job)
		b.StartTimer()
	}
	require.Greater(b, entries, uint64(b.N)*keys)
	b.ReportMetric(float64(entries)/float64(b.N), "entries")
	b.ReportMetric(float64(entries)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkCommit measures the time from an item at the source to its result at the sink of a job
// of three stages, one item at a time: the cost of three commits, by the number of key groups. (The
// source has the shortest flush interval.) Bytes are the log's, for one item.
func BenchmarkCommit(b *testing.B) {
	for _, groups := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			log := benchLog(b)
			feed, seen := make(chan int64, 1), make(chan struct{}, 1)
			job := operators.NewJob("commit")
			in := operators.FromSource(job, "fed", fed(feed), serde.Int64)
			counts := operators.Count(operators.KeyBy(in, "keyed", serde.Int64, func(v *int64) int64 { return *v % 1000 }))
			operators.ToSink(counts, "out", operators.FuncSink(func(*operators.Batch[operators.Change[int64, int64]]) error {
				seen <- struct{}{}
				return nil
			}))
			plan, err := job.Plan()
			require.NoError(b, err)
			j, err := tasks.Start(b.Context(), log, plan, tasks.Options{Parallelism: 1, Groups: groups, CommitInterval: 100 * time.Microsecond, Logger: quiet})
			require.NoError(b, err)
			feed <- -1
			<-seen
			before, v := log.Stats(), int64(0)
			for b.Loop() {
				feed <- v
				<-seen
				v++
			}
			after := log.Stats()
			b.ReportMetric(float64(after.Written-before.Written)/float64(b.N), "log-B/item")
			b.ReportMetric(float64(after.Groups-before.Groups)/float64(b.N), "appends/item")
			stop(b, j)
		})
	}
}

// fed is a source that yields the items of a channel.
type fed chan int64

func (fed) Partitions() int                                { return 1 }
func (f fed) Open(int) (operators.Partition[int64], error) { return f, nil }
func (fed) Position(dst []byte) []byte                     { return dst }
func (fed) Seek([]byte) error                              { return nil }
func (fed) Close() error                                   { return nil }
func (fed) Watermark() int64                               { return operators.MinTime }
func (f fed) Read(b *operators.Batch[int64], _ int, now int64) (operators.Status, error) {
	select {
	case v := <-f:
		b.Append(v, now)
		return operators.Status{State: operators.More}, nil
	default:
		return operators.Status{State: operators.Waiting, Due: now}, nil
	}
}
