package direct_test

import (
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/slice"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/commit/direct"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// job is a job on a log in memory, with committers of this package.
type job struct {
	cfg *runtime.Config
	mu  sync.Mutex
	saw []observe.Event
}

// start makes a job that counts 100 numbers by their remainder, and makes it known to the log.
func newJob(t *testing.T, p progress.Protocol) *job {
	items := make([]int64, 100)
	for i := range items {
		items[i] = int64(i)
	}
	dsl := operators.NewJob("counting")
	in := operators.FromSource(dsl, "numbers", slice.Of(items, func(v *int64) int64 { return *v }), serde.Int64)
	counts := operators.Count(operators.KeyBy(in, "keyed", serde.Int64, func(v *int64) int64 { return *v % 7 }))
	operators.ToSink(counts, "out", optest.Collect[operators.Change[int64, int64]](nil))
	plan, err := dsl.Plan()
	require.NoError(t, err)
	l, err := layout.New(plan, "j", 4, 2)
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	owner := sharedlog.Condition{Key: tags.ManagerKey("j"), Value: []byte("1")}
	_, err = log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "w", owner)
	for i, s := range l.Streams {
		p := envelope.Producers{Stream: uint32(i), Stage: uint32(s.Producer), Tasks: l.Stages[s.Producer].Tasks}
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{s.All}, Data: p.Append(nil)}).Wait(t.Context())
		require.NoError(t, err)
	}
	j := &job{}
	j.cfg = &runtime.Config{
		Log: log, Layout: l, Protocol: p, Commits: direct.Commits{}, CommitInterval: time.Millisecond, FlushInterval: time.Millisecond,
		CommitBytes: 1 << 20, HeldMemory: 1 << 20, InFlight: 4, OnError: runtime.OnErrorFail, Clock: time.Now,
		Observer: j.observe, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	return j
}

func (j *job) observe(e observe.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.saw = append(j.saw, e)
}

// steps returns the steps of a task's instance, in their order.
func (j *job) steps(stage string, task int, instance uint64) (all []observe.Step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.saw {
		if e.Job == "j" && e.Stage == stage && e.Task == task && e.Instance == instance {
			all = append(all, e.Step)
		}
	}
	return all
}

func (j *job) run(t *testing.T) {
	running, err := runtime.Start(t.Context(), j.cfg)
	require.NoError(t, err)
	require.NoError(t, running.Wait())
}

// Each task commits by itself: its last marker has the end of its input, and an instance that comes
// behind it changes nothing.
func TestTasksCommitAlone(t *testing.T) {
	for _, p := range []progress.Protocol{progress.Fused, progress.Marker, progress.Unsafe} {
		t.Run(p.Name(), func(t *testing.T) {
			j := newJob(t, p)
			j.run(t)
			tail, err := j.cfg.Log.Tail(t.Context())
			require.NoError(t, err)
			for s, stage := range j.cfg.Layout.Plan.Stages {
				require.False(t, j.cfg.Commits.Together(s))
				for i := range j.cfg.Layout.Stages[s].Tasks {
					m, _, err := records.MarkerOf(t.Context(), j.cfg.Log, "j", stage.Name, s, i, tail)
					require.NoError(t, err)
					require.NotNil(t, m)
					require.True(t, m.Ended)
					require.EqualValues(t, 1, m.Instance)
					require.Zero(t, m.Checkpoint)
				}
			}
			logged := false
			for _, tag := range j.cfg.Layout.Stages[1].Changes {
				_, ok, err := j.cfg.Log.Last(t.Context(), tag, tail)
				require.NoError(t, err)
				logged = logged || ok
			}
			require.Equal(t, p.Capabilities().KeepsChanges, logged, "changes of state")

			j.run(t)
			again, err := j.cfg.Log.Tail(t.Context())
			require.NoError(t, err)
			require.Equal(t, tail, again, "nothing was appended")
		})
	}
}

// An observer is told the start of an instance in order, each time with what it has reached by then.
// An instance that finds the end committed is told to be the only one, and nothing else.
func TestStepsOfAStart(t *testing.T) {
	j := newJob(t, progress.Fused)
	j.cfg.Checkpoints = storetest.NewMem()
	j.cfg.SnapshotInterval, j.cfg.SnapshotMemory = time.Millisecond, 1<<20
	j.run(t)
	name := j.cfg.Layout.Plan.Stages[1].Name
	steps := j.steps(name, 0, 1)
	start := []observe.Step{observe.RecoveryFenced, observe.RecoveryRestored, observe.RecoveryAnnounced}
	require.Equal(t, start, slices.DeleteFunc(slices.Clone(steps), func(s observe.Step) bool { return !slices.Contains(start, s) }))
	require.Contains(t, steps, observe.FirstResult)
	named := slices.Index(steps, observe.SnapshotNamed)
	if written := slices.Index(steps, observe.SnapshotWritten); named >= 0 {
		require.Less(t, written, named)
		require.Less(t, slices.Index(steps, observe.SnapshotNaming), named)
	}
	j.run(t)
	require.Equal(t, []observe.Step{observe.RecoveryFenced}, j.steps(name, 0, 2))
}
