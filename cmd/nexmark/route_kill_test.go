package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/observe"
)

// A process that balances with slots dies at each point of a change of the routing table, when it is there for the first, second, third or
// fourth time, each time with another of both protocols, and of counts and windows by clocks of keys; the next one resumes, and the
// rows are the oracle's. A run takes one of the times for each point (proctest.Drawn).
func TestKilledAtEveryPointOfARoute(t *testing.T) {
	for i, point := range walk.OfRoutes() {
		if point == walk.At(observe.RouteEntered) {
			continue // balancing adds no task: tasks.TestReroutedOverCrashes ends jobs there
		}
		for k := range 4 {
			times := k + 1
			if !proctest.Drawn(fmt.Sprintf("%s: %s/%d", t.Name(), point, times), 2*i+k, 4) { // i+k would take one pair of them in a run
				continue
			}
			name, protocol := []string{"count", "kw"}[(i+k)%2], []string{"fused", "marker"}[(i+k)/2%2]
			home := []string{"disk", "memory"}[k/2]
			t.Run(fmt.Sprintf("%s/%d/%s/%s/%s", point, times, name, protocol, home), func(t *testing.T) {
				t.Parallel()
				// On a busy machine the input may end before: then repeat it with a longer one.
				for _, took := range []time.Duration{4 * time.Second, 16 * time.Second, 64 * time.Second} {
					if killedAtRoute(t, point, times, name, protocol, home, took) {
						return
					}
				}
				require.Fail(t, "the process did not come to the point")
			})
		}
	}
}

// killedAtRoute reports whether a process came to the point before its input, which takes so long, had ended.
func killedAtRoute(t *testing.T, point crash.Point, times int, name, protocol, home string, took time.Duration) bool {
	s, w, right := drifting(t, name, uint64(times), took)
	dir := t.TempDir()
	s.Output, s.Protocol, s.CommitInterval, s.Groups, s.Slots = filepath.Join(dir, "out"), protocol, 10*time.Millisecond, 8, 8
	if name == "kw" {
		s = withGrain(s, "key")
		var err error
		right, err = w.Right(&workload.Params{Own: s.Own}, s.Generator)
		require.NoError(t, err)
	}
	s.Balance = &tasks.Balance{Dispatch: "least-count", When: tasks.BalanceWhen{Every: 50}}
	require.NoError(t, s.CheckBalance())
	v := victim{Dir: filepath.Join(dir, "log"), Store: filepath.Join(dir, "snapshots"), Settings: s}
	if home == "disk" {
		v.State = filepath.Join(dir, "state")
	}
	if point == walk.At(observe.RouteResumed) { // there is something to resume once a process has ended amid a change
		v.Point, v.Times = walk.At(observe.RouteAdopting), 1
		if !v.run(t) {
			return false
		}
		times = min(times, 3) // it is there once for each task that has not adopted the table
	}
	v.Point, v.Times = point, times
	came := v.run(t)
	if v.Times = 0; came {
		require.False(t, v.run(t))
	}
	sameRows(t, w, right, s.Output)
	return came
}
