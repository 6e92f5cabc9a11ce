package retention

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/tags"
)

// What tasks that commit together may trim follows from the complete checkpoint before the newest
// (pitfall G2); barriers of an incomplete one do not count. A sink follows its own marker.
func TestTrimBehindCheckpoints(t *testing.T) {
	plan := &exec.Plan{
		Streams: []exec.StreamSpec{{Name: "bids"}, {Name: "rows"}},
		Stages: []exec.StageSpec{
			{Name: "source", Partitions: 1, Outputs: []int{0}},
			{Name: "count", Inputs: []int{0}, Outputs: []int{1}},
			{Name: "out", Inputs: []int{1}, Sink: true},
		},
	}
	l, err := layout.New(plan, "j", 4, 1)
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	w.Force = true
	put := func(tag sharedlog.Tag, data []byte) sharedlog.LSN {
		lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: data}).Wait(t.Context())
		require.NoError(t, err)
		return lsn
	}
	barriers := func(n uint64, low sharedlog.LSN) *envelope.Checkpoint {
		c := &envelope.Checkpoint{Job: "j", Number: n}
		for s, stage := range []string{"source", "count"} {
			m := envelope.Marker{Stage: uint32(s), Checkpoint: n, Low: low, Commit: n}
			c.Tasks = append(c.Tasks, envelope.CheckpointTask{Stage: uint32(s), Barrier: put(tags.Task("j", stage, 0), m.Append(nil))})
		}
		return c
	}
	complete := func(c *envelope.Checkpoint) sharedlog.LSN { return put(tags.Checkpoints("j"), c.Append(nil)) }
	points := func() map[string]sharedlog.LSN {
		tail, err := log.Tail(t.Context())
		require.NoError(t, err)
		marks, err := readMarks(t.Context(), log, l, members(l, nil), tail)
		require.NoError(t, err)
		all := map[string]sharedlog.LSN{}
		for _, p := range Points(l, Marks{Tasks: marks}, Held{}) {
			all[p.What] = p.Before
		}
		return all
	}
	c1 := barriers(1, 100)
	require.Zero(t, points()["log of count/0"], "no checkpoint is complete")
	at1 := complete(c1)
	c2 := barriers(2, 200)
	require.Zero(t, points()["log of count/0"], "one is, and none before it")
	complete(c2)
	barriers(3, 300)
	sink := put(tags.Task("j", "out", 0), (&envelope.Marker{Stage: 2, Low: 17, Commit: 1}).Append(nil))
	got := points()
	require.Equal(t, map[string]sharedlog.LSN{
		"log of source/0": c1.Tasks[0].Barrier, "log of count/0": c1.Tasks[1].Barrier, "log of out/0": sink,
		"state of source/0": 0, "state of count/0": 0, "state of out/0": 0,
		"stream bids": 100, "stream rows": 17, "checkpoints": at1,
	}, got)
}
