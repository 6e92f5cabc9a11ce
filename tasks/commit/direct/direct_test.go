package direct_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/commit/committest"
	"tailrace.dev/tailrace/tasks/commit/direct"
	"tailrace.dev/tailrace/tasks/embedded"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/runtime"
)

// job is a job with committers of this package, and the steps that it has reported.
type job struct {
	cfg *runtime.Config
	mu  sync.Mutex
	saw []observe.Event
}

func newJob(t *testing.T, p progress.Protocol) *job {
	j := &job{cfg: committest.Counting(t, p)}
	j.cfg.Commits, j.cfg.Clock, j.cfg.Observer = direct.Commits{}, time.Now, j.observe
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
	running, err := embedded.Start(t.Context(), j.cfg)
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
