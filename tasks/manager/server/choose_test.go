package server

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/runtime"
)

// A grain is chosen of each stage with Auto, as long as its job runs. While key groups move, or a savepoint is asked for or made, nothing is
// decided.
func TestChoosers(t *testing.T) {
	grain := func(kind string) *exec.Grain { return &exec.Grain{Kind: kind} }
	spec := &tasks.Spec{Name: "job", Plan: &exec.Plan{Stages: []exec.StageSpec{{Name: "keys"}, {Name: "by-key", Grain: grain(exec.GrainAuto)}, {Name: "own", Grain: grain(exec.GrainKey)}}}}
	r := &term{
		Server:   &Server{opt: Options{Logger: slog.New(slog.DiscardHandler), Log: mem.New(mem.Options{})}},
		choosers: map[chosen]*chooser{}, switches: map[chosen]*switching{}, drives: map[string]*drive{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	k := chosen{"job", "job-1", "by-key"}
	var first *chooser
	for _, c := range []struct {
		phase           meta.Phase
		want            string
		savepoint, move bool
		there, busy     bool
	}{
		{phase: meta.Running, there: true},
		{phase: meta.Running, move: true, there: true, busy: true},
		{phase: meta.Running, savepoint: true, there: true, busy: true},
		{phase: meta.Draining, there: true, busy: true},
		{phase: meta.Saving, there: true, busy: true},
		{phase: meta.Stopping},
		{phase: meta.Running, want: meta.Stop},
	} {
		j := meta.Job{Spec: spec, Want: c.want}
		if c.savepoint {
			j.Savepoint = &meta.Savepoint{}
		}
		r.jobs, r.states = map[string]meta.Job{"job": j}, map[string]meta.State{"job": {ID: "job-1", Phase: c.phase}}
		delete(r.drives, "job")
		if c.move {
			r.drives["job"] = &drive{}
		}
		r.choose(ctx, func(f func()) { f() }, &wg)
		if !c.there {
			require.Empty(t, r.choosers, "%+v", c)
			continue
		}
		require.Len(t, r.choosers, 1)
		require.Equal(t, c.busy, r.choosers[k].Busy(), "%+v", c)
		if first == nil {
			first = r.choosers[k]
		}
		require.Same(t, first, r.choosers[k])
	}
}

// A switch that its chooser no longer waits for has no outcome, and one of a job that was deleted is none of the next job of that name.
func TestSwitchesOfDeletedJobs(t *testing.T) {
	r := &term{
		Server: &Server{opt: Options{Logger: slog.New(slog.DiscardHandler)}},
		states: map[string]meta.State{"job": {ID: "next"}}, switches: map[chosen]*switching{}, changed: map[string]bool{},
	}
	of := func(id, stage string) *switching {
		w := &switching{chosen{"job", id, stage}, runtime.Switch{Stage: stage}, time.Now(), make(chan error, 1)}
		r.switches[w.chosen] = w
		return w
	}
	former, b, a := of("former", "a"), of("next", "b"), of("next", "a")
	require.Equal(t, []*switching{a, b}, r.wishes("job"))
	r.switched(former, nil)
	require.Empty(t, r.states["job"].Switched)
	require.NoError(t, <-former.said)
	r.switched(a, runtime.ErrNoHandover)
	require.ErrorIs(t, <-a.said, runtime.ErrNoHandover)
	require.Empty(t, r.states["job"].Switched)
	delete(r.switches, b.chosen)
	r.switched(b, nil)
	require.Empty(t, b.said)
	require.Len(t, r.states["job"].Switched, 1, "its plan is in the log")
	require.True(t, r.changed["job"])
}
