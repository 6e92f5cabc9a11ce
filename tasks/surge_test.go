package tasks_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// A rate that doubles for 30 s and falls again: the stage is scaled out before the latency of rows
// has been above a second for 5 s, scaled in when it is over, and not otherwise; each row comes once.
//
// It runs in virtual time. With TAILRACE_SOAK=1 it runs in real time, on a log on disk, and prints
// what happens each second (make surge, three minutes): a task waits 2 ms for each item, as for
// another service, so that tasks and not cores are what the load needs. How long such a wait is then
// depends on the machine, so only the rows are checked.
func TestSurge(t *testing.T) {
	if os.Getenv("TAILRACE_SOAK") != "" {
		log, err := embedded.Open(t.TempDir(), embedded.Options{Logger: quiet})
		require.NoError(t, err)
		underSurge(t, log, true)
		require.NoError(t, log.Close())
		return
	}
	synctest.Test(t, func(t *testing.T) { underSurge(t, mem.New(mem.Options{}), false) })
}

func underSurge(t *testing.T, log sharedlog.Log, inRealTime bool) {
	const (
		rate, from, to, end = 225, 40, 70, 200 // items a second; s
		items               = rate * (end + to - from)
	)
	begin := time.Now().Add(time.Second)
	due := func(k int) int64 {
		switch first, surge := rate*from, 2*rate*(to-from); {
		case k < first:
			return begin.UnixMilli() + int64(k)*1000/rate
		case k < first+surge:
			return begin.UnixMilli() + from*1000 + int64(k-first)*1000/(2*rate)
		default:
			return begin.UnixMilli() + to*1000 + int64(k-first-surge)*1000/rate
		}
	}
	var all []optest.Timed[int64]
	for k := range items {
		all = append(all, optest.At(due(k), int64(k)))
	}
	var mu sync.Mutex
	var seen, latencies []int64
	plan := func() *operators.Plan {
		job := operators.NewJob("surge")
		src := operators.FromSource(job, "items", scheduled{optest.Items(0, all), due}, serde.Int64)
		byKey := operators.KeyBy(src, "calls", serde.Int64, func(k *int64) int64 { return *k * 7919 % 1009 })
		called := operators.MapValues(byKey, func(_, v *int64) int64 {
			time.Sleep(2 * time.Millisecond)
			return *v
		})
		operators.ToSink(called, "rows", operators.FuncSink(func(b *operators.Batch[operators.KV[int64, int64]]) error {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now().UnixMilli()
			for i := range b.Items {
				seen, latencies = append(seen, b.Items[i].Value), append(latencies, now-b.Times[i])
			}
			return nil
		}))
		plan, err := job.Plan()
		require.NoError(t, err)
		return plan
	}()
	job, err := tasks.Start(t.Context(), log, plan, tasks.Options{Parallelism: 1, Logger: quiet, CommitInterval: 20 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, job.Autoscale(t.Context(), tasks.Autoscale{Stage: "calls", Min: 1, Max: 4}))
	slow, slowest, worst := 0, 0, int64(0) // seconds on end in which a row was more than a second late; ms
	for s := range end {
		time.Sleep(time.Until(begin.Add(time.Duration(s+1) * time.Second)))
		mu.Lock()
		second := slices.Sorted(slices.Values(latencies))
		latencies = nil
		mu.Unlock()
		a := job.Autoscaled()[0]
		if n := len(second); n > 0 {
			if slow++; second[n-1] <= 1000 {
				slow = 0
			}
			worst, slowest = max(worst, second[n-1]), max(slowest, slow)
			if inRealTime {
				fmt.Printf("%3d s: %4d rows, latency p50 %4d ms, max %4d ms, %d tasks; %s\n", s+1, n, second[n/2], second[n-1], a.Tasks, a.Why)
			}
		}
	}
	require.NoError(t, job.Wait())
	a := job.Autoscaled()[0]
	t.Logf("latency at most %d ms, above a second for at most %d s on end", worst, slowest)
	for i := range a.Rescales {
		r := &a.Rescales[i]
		t.Logf("%.1f s: %d → %d tasks in %.0f ms: %s %s", r.At.Sub(begin).Seconds(), r.From, r.To, r.SettledMS, r.Why, r.Error)
	}
	slices.Sort(seen)
	require.Len(t, seen, items)
	require.Len(t, slices.Compact(seen), items)
	if inRealTime {
		return
	}
	require.LessOrEqual(t, slowest, 5)
	require.Equal(t, 2, a.Count, "one step out, one in: %+v", a.Rescales)
	require.Greater(t, a.Rescales[0].To, a.Rescales[0].From)
	require.Less(t, a.Rescales[0].At, begin.Add((from+10)*time.Second))
	require.Greater(t, a.Rescales[0].At, begin.Add(from*time.Second))
	require.Equal(t, 1, a.Tasks)
	require.Greater(t, a.Rescales[1].At, begin.Add(to*time.Second))
}
