package tasks_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	logrecords "tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/state"
)

// Slots that nothing is placed in are key groups without items: they move, tasks and processes end meanwhile, and
// the rows are those of a job without slots.
func TestEmptySlots(t *testing.T) {
	for seed, protocol := range []string{"fused", "marker"} {
		rng := rand.New(rand.NewPCG(uint64(seed), 21))
		x := newTrails(uint64(seed), 20_000, 2)
		file, log := filepath.Join(t.TempDir(), "out"), mem.New(mem.Options{})
		o := tasks.Options{Parallelism: 2, Groups: 8, Slots: 3, CommitInterval: time.Millisecond, Logger: quiet, Protocol: protocol, Checkpoints: storetest.NewMem(), SnapshotInterval: time.Millisecond}
		overCrashes(t, rng, 6000, func() *tasks.Job {
			job, err := tasks.Start(t.Context(), log, x.plan(t, file), o)
			require.NoError(t, err)
			require.Len(t, job.Layout().Stages[1].Owner, 11)
			return job
		}, func(job *tasks.Job, life int) {
			for n := 1; ; n = n%4 + 1 {
				if _, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: n}); err != nil {
					return
				}
			}
		})
		sameRows(t, x.want, lines(t, file))

		o.Slots = 2
		_, err := tasks.Start(t.Context(), log, x.plan(t, file), o)
		require.ErrorIs(t, err, tasks.ErrSettings)
		require.ErrorContains(t, err, "it has 3 slots a stream (0: none), is now to have 2; run it with as many")
		o.Slots = 0
		_, err = tasks.Start(t.Context(), log, x.plan(t, file), o)
		require.ErrorContains(t, err, "it has 3 slots a stream (0: none), is now to have 0")
	}
}

// What a stage keeps decides whether it can have slots: its job does not begin, nothing of it is in the log, and without slots it runs.
func TestSlotsOfWindows(t *testing.T) {
	o := tasks.Options{Parallelism: 2, Groups: 8, Slots: 3, Logger: quiet}
	start := func(plan *operators.Plan) error {
		log := mem.New(mem.Options{})
		_, err := tasks.Start(t.Context(), log, plan, o)
		have, failed := tasks.Settings(t.Context(), log, plan.Name)
		require.NoError(t, failed)
		require.Nil(t, have)
		without := o
		without.Slots = 0
		require.NoError(t, tasks.Run(t.Context(), log, plan, without))
		return err
	}
	out := filepath.Join(t.TempDir(), "out")
	for _, o.State = range []*state.Pebble{nil, onDisk(t)} {
		err := start(windowTally.with(1, out, 1, operators.WatermarkPer(operators.Keys(4), time.Second)).plan(t))
		require.ErrorIs(t, err, exec.ErrStays)
		require.ErrorContains(t, err, `stage "by-key" cannot have slots: `)
		require.ErrorContains(t, err, "keys of a group share its clocks, and a part of it cannot take one along; use WatermarkPer(Key), or a stage without slots")
	}
}

// The log says which streams have slots.
func TestPlanOfSlots(t *testing.T) {
	log := mem.New(mem.Options{})
	w := newWorld(1, 100, 2)
	spec, err := tasks.Describe(w.plan(t, "out"), tasks.Options{Parallelism: 2, Groups: 8, Slots: 3, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, "6", spec.Format)
	require.NoError(t, spec.Savable())
	id, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	p, at, err := logrecords.LastPlan(t.Context(), log, id, tail)
	require.NoError(t, err)
	require.NotZero(t, at)
	var groups, slots []int
	for _, s := range p.Streams {
		groups, slots = append(groups, s.Groups), append(slots, s.Slots)
	}
	require.Equal(t, []int{8, 11, 1}, groups)
	require.Equal(t, []int{0, 3, 0}, slots)
	_, err = tasks.Join(t.Context(), log, spec, id, w.plan(t, "out"), tasks.Options{Logger: quiet})
	require.NoError(t, err)
	without, err := tasks.Describe(w.plan(t, "out"), tasks.Options{Parallelism: 2, Groups: 8, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, "4", without.Format)
	require.ErrorIs(t, spec.Same(without), tasks.ErrSettings)
	require.ErrorIs(t, without.Same(spec), tasks.ErrSettings)
}

// Where slots cannot be, the error says why.
func TestSlotsAreRefused(t *testing.T) {
	w := newWorld(1, 100, 2)
	for _, c := range []struct {
		o    tasks.Options
		want string
	}{
		{tasks.Options{Slots: 4, Protocol: "txn"}, "cannot under protocol txn: use fused or marker, or no slots"},
		{tasks.Options{Slots: -1}, "slots: -1 is out of bounds 0 to 256"},
		{tasks.Options{Slots: 257}, "slots: 257 is out of bounds 0 to 256"},
	} {
		c.o.Logger = quiet
		_, err := tasks.Describe(w.plan(t, "out"), c.o)
		require.ErrorContains(t, err, c.want)
	}
}
