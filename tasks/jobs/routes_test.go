//go:build !nokeyed

package jobs_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// silent is a source without items, which ends when it is closed.
type silent chan struct{}

func (s silent) Partitions() int { return 1 }

func (s silent) Open(int) (operators.Partition[int64], error) { return s, nil }

func (s silent) Read(_ *operators.Batch[int64], _ int, now int64) (operators.Status, error) {
	select {
	case <-s:
		return operators.Status{State: operators.Ended}, nil
	default:
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
}

func (s silent) Watermark() int64           { return operators.MinTime }
func (s silent) Position(dst []byte) []byte { return dst }
func (s silent) Seek([]byte) error          { return nil }
func (s silent) Close() error               { return nil }

// An overview shows what is in the slots of the stages that read streams with some, by the newest table in the log, and what
// etcd knows of requests for tables. Until the log is read, only the latter.
func TestSlotsOfStages(t *testing.T) {
	in := make(silent)
	job := operators.NewJob("job")
	counted := operators.Process(operators.KeyBy(operators.FromSource(job, "in", in, serde.Int64), "by-key", serde.Int64, func(v *int64) int64 { return *v }), "count",
		func(c *operators.Context[int64, int64]) operators.Handler[int64] {
			seen := operators.NewMap(c, "seen", serde.Int64, serde.Int64)
			return operators.Handler[int64]{Item: func(*int64) { *seen.Upsert(0)++ }}
		}).With(serde.Int64)
	operators.ToSink(counted, "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	o := tasks.Options{Parallelism: 2, Groups: 8, Slots: 4, CommitInterval: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	spec, err := tasks.Describe(plan, o)
	require.NoError(t, err)
	running, err := tasks.Start(t.Context(), log, plan, o)
	require.NoError(t, err)

	look := func() *jobs.Overview {
		return &jobs.Overview{View: meta.View{
			Jobs: map[string]meta.Job{
				"job": {Spec: spec, Reroute: []meta.Reroute{{Stage: "by-key", Number: 4}, {Stage: "by-key", Number: 3}}},
				"new": {Spec: spec},
			},
			States: map[string]meta.State{"job": {Phase: meta.Running, ID: running.Layout().Job, Rerouted: []meta.Rerouted{{Rescaled: tasks.Rescaled{Stage: "by-key"}, Number: 3, Error: "no"}}}},
		}}
	}
	of := func(o *jobs.Overview, job string) []*jobs.Slots {
		var all []*jobs.Slots
		for _, j := range o.Jobs() {
			for _, st := range j.Stages {
				if j.Name == job {
					require.Equal(t, st.Stage == "by-key", st.Slots != nil, st.Stage)
					all = append(all, st.Slots)
				}
			}
		}
		return slices.DeleteFunc(all, func(s *jobs.Slots) bool { return s == nil })
	}
	first := look()
	require.Equal(t, []*jobs.Slots{{Slots: 4}}, of(first, "new"))
	newest := &meta.Rerouted{Rescaled: tasks.Rescaled{Stage: "by-key"}, Number: 3, Error: "no"}
	require.Equal(t, []*jobs.Slots{{Slots: 4, Newest: newest, UnderWay: true}}, of(first, "job"))
	require.Equal(t, "the routing table stays: no", newest.String())
	require.NoError(t, first.Routes(t.Context(), log, "new"), "it has not run")
	require.NoError(t, first.Routes(t.Context(), log, "job"))
	require.Equal(t, &jobs.Table{Places: []jobs.Place{}}, of(first, "job")[0].Table)
	require.Nil(t, of(first, "new")[0].Table)

	seven := int64(7)
	key := serde.Int64.Append(nil, &seven)
	owners := slices.Clone(running.Layout().Stages[1].Owner)
	owners[9], owners[11] = 1-owners[9], 0
	home := exec.GroupOf(exec.HashKey(key), 8)
	require.NoError(t, running.Reroute(t.Context(), tasks.Reroute{Stage: "by-key", Owners: owners, Places: []route.Place{
		{Part: route.Single(key), Slot: 11}, {Part: route.Part{Group: (home + 1) % 8, Sub: 3, N: 4}, Slot: 9},
	}}))
	second := look()
	answered := second.View.Jobs["job"]
	answered.Reroute = answered.Reroute[1:]
	second.View.Jobs["job"] = answered
	require.NoError(t, second.Routes(t.Context(), log, "job"))
	require.False(t, of(second, "job")[0].UnderWay)
	table := of(second, "job")[0].Table
	require.Equal(t, &jobs.Table{Epoch: 1, Used: 2, Places: []jobs.Place{
		{Part: (route.Part{Group: (home + 1) % 8, Sub: 3, N: 4}).String(), First: 3, Sixteenths: 4, Group: (home + 1) % 8, Slot: 9, Task: owners[9]},
		{Part: route.Single(key).String(), Key: key, Group: home, Slot: 11, Task: 0},
	}}, table)
	text, err := json.Marshal(table.Places[1])
	require.NoError(t, err)
	var told jobs.Place
	require.NoError(t, json.Unmarshal(text, &told))
	require.Equal(t, table.Places[1], told)
	close(in)
	require.NoError(t, running.Wait())
}
