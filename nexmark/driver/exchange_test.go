package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/layout"
)

// The exchange of a measurement is what goes from the tasks that read events to those that own keys:
// neither the events of source "log" nor the rows nor the changes of state.
func TestExchange(t *testing.T) {
	for _, c := range []struct {
		exchange string
		stream   string
		least    float64 // of items an event
		most     float64
	}{
		{"keyby", "readings", 0.5, 2},
		{"local", "readings", 0.001, 0.45},
		{"ahead", "", 0, 0},
	} {
		t.Run(c.exchange, func(t *testing.T) {
			log := mem.New(mem.Options{})
			r, err := Bench(t.Context(), log, BenchSettings{
				Settings: Settings{
					Workload: "lvd", Own: map[string]string{"exchange": c.exchange, "partition-by": "key", "sensors": "10"}, Logged: c.exchange == "keyby",
					Partitions: 2, Parallelism: 2, Groups: 8, Protocol: "fused", CommitInterval: 20 * time.Millisecond, WatermarkDelay: time.Second,
					Generator: generator.Config{Rate: 5000},
				},
				Warmup: 200 * time.Millisecond, Duration: time.Second,
			}, nil)
			require.NoError(t, err)
			x := r.Exchange
			items := float64(x.Items) / (r.Achieved * r.Seconds)
			require.GreaterOrEqual(t, items, c.least)
			require.LessOrEqual(t, items, c.most)
			require.Zero(t, *x.RemoteShare)
			if c.stream == "" {
				require.Empty(t, x.Streams)
				require.Zero(t, x.Bytes)
				return
			}
			require.Equal(t, []Stream{{c.stream, x.Items, x.Bytes}}, x.Streams)
			require.Greater(t, x.Bytes, 4*x.Items, "a key, a time and a value")
			require.Greater(t, x.BytesPerEvent, 0.0)
			require.NoError(t, log.Close())
		})
	}
}

// What a task has sent since a reading is what its instance has; a new instance has sent all that it
// shows.
func TestExchangeOfInstances(t *testing.T) {
	of := func(task int, instance uint64, items uint64) tasks.Status {
		return tasks.Status{Stage: "events", Task: task, Instance: instance, Sent: []tasks.Sent{{Stream: "keys", Items: items, Bytes: 10 * items}, {Stream: "dead", Items: 1}}}
	}
	x := exchange([]string{"keys", "more"}, []tasks.Status{of(0, 1, 100), of(1, 1, 100)}, []tasks.Status{of(0, 1, 150), of(1, 2, 7), of(2, 1, 3)}).per(120, 6000)
	require.EqualValues(t, 60, x.Items)
	require.EqualValues(t, 600, x.Bytes)
	require.Equal(t, 5.0, x.BytesPerEvent)
	require.Equal(t, 0.1, *x.Share)
	require.Equal(t, []Stream{{"keys", 60, 600}}, x.Streams)
}

// An item is remote if the task that owns its key group is on another worker than the one that has sent it.
func TestPlaced(t *testing.T) {
	l, err := layout.New(&operators.Plan{
		Streams: []exec.StreamSpec{{Name: "keys"}, {Name: "rows", Groups: 1}},
		Stages:  []exec.StageSpec{{Name: "events", Partitions: 2, Outputs: []int{0}}, {Name: "sums", Inputs: []int{0}, Outputs: []int{1}}, {Name: "rows", Sink: true, Inputs: []int{1}}},
	}, "job", 4, 2)
	require.NoError(t, err)
	source := func(task int, items ...uint64) tasks.Status {
		return tasks.Status{Stage: "events", Task: task, Sent: []tasks.Sent{{Stream: "keys", ByGroup: items}}}
	}
	sums := func(task int) tasks.Status {
		return tasks.Status{Stage: "sums", Task: task, Sent: []tasks.Sent{{Stream: "rows", ByGroup: []uint64{1000}}}}
	}
	x := &Exchange{Streams: []Stream{{Name: "keys"}}}
	x.Placed(l, [][]tasks.Status{{source(0, 10, 20, 30, 40), sums(0)}, {source(1, 5, 5, 5, 5), sums(1)}})
	require.InDelta(t, (30.+40+5+5)/120, *x.RemoteShare, 1e-9)
	x.Placed(l, [][]tasks.Status{{source(0, 10, 20, 30, 40), sums(0), source(1, 5, 5, 5, 5), sums(1)}})
	require.Zero(t, *x.RemoteShare)
	x = &Exchange{Streams: []Stream{{Name: "keys"}}}
	x.Placed(l, [][]tasks.Status{{source(0, 0, 0, 0, 0), sums(0)}})
	require.Nil(t, x.RemoteShare, "nothing was sent")
}
