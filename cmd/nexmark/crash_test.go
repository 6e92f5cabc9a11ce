package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/internal/redistest"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/oracle"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/state"
)

// asVictim is the variable that holds, as JSON, what a process of this test binary runs until it is
// killed: a victim.
const asVictim = "NEXMARK_TEST_VICTIM"

type victim struct {
	Settings driver.Settings
	Dir      string // of the log
	Store    string // of snapshots: a directory or a URL
	State    string // a directory for state on disk, of which next to nothing stays in memory; "": in memory
	Point    crash.Point
	Times    int // die when it reaches the point for this number of times; 0: do not
	// Interrupted: after this time the victim is interrupted and makes a savepoint.
	Interrupted time.Duration
}

// isOver is in the output of a victim that had finished before it was interrupted.
const isOver = "its output is complete"

// beVictim runs a query on a log of small segments, with trims and snapshots all the time, and dies
// at the requested point.
func beVictim(s string) int {
	var v victim
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		return fail(err)
	}
	if v.Times > 0 {
		crash.Arm(v.Point, v.Times)
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	log, err := embedded.Open(v.Dir, embedded.Options{SegmentBytes: 128 << 10, FsyncInterval: time.Millisecond, Logger: quiet})
	if err != nil {
		return fail(err)
	}
	store, err := checkpoint.Open(context.Background(), v.Store, nil, quiet)
	if err != nil {
		return fail(err)
	}
	if v.State != "" {
		if v.Settings.State, err = state.OpenPebble(v.State, 1<<20); err != nil {
			return fail(err)
		}
		defer v.Settings.State.Close()
		for i, others := 0, v.Settings.State.Task(); i < 1<<12; i++ {
			others.Table(i).Limit() // takes a share of the memory
		}
	}
	v.Settings.Checkpoints, v.Settings.SnapshotInterval = store, 3*time.Millisecond
	v.Settings.TrimBytes, v.Settings.TrimInterval = 1, time.Millisecond
	v.Settings.Observer = walk.Observe
	if len(v.Settings.Rescales) > 0 {
		v.Settings.Observer = tellSteps
	}
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	var show func(driver.Live)
	if v.Interrupted > 0 {
		show = func(l driver.Live) {
			if l.Elapsed >= v.Interrupted {
				interrupt()
			}
		}
	}
	sum, err := driver.Run(ctx, log, v.Settings, show)
	if err == nil && v.Interrupted > 0 && sum.Savepoint == nil {
		err = errors.New("it was not interrupted: " + isOver)
	}
	if err = errors.Join(err, store.Close(), log.Close()); err != nil {
		return fail(err)
	}
	if len(v.Settings.Rescales) > 0 {
		if err := json.NewEncoder(os.Stdout).Encode(sum.Rescaled); err != nil {
			return fail(err)
		}
	}
	return 0
}

// tellSteps is walk.Observe that first prints each step of a rescale, so that who kills the process knows
// what it had done.
func tellSteps(e observe.Event) {
	if slices.Contains(walk.OfRescales(), walk.At(e.Step)) {
		fmt.Fprintln(os.Stderr, e.Step)
	}
	walk.Observe(e)
}

// run runs the victim and returns whether it was killed.
func (v victim) run(t *testing.T) (killed bool) {
	t.Helper()
	killed, over := v.interrupted(t)
	require.False(t, over)
	return killed
}

// interrupted runs the victim; over reports that it had ended before the interrupt.
func (v victim) interrupted(t *testing.T) (killed, over bool) {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	cmd := proctest.Command(t, os.Args[0])
	cmd.Env = append(os.Environ(), asVictim+"="+string(b))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err = cmd.Run()
	if err == nil {
		return false, false
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	if v.Interrupted > 0 && strings.Contains(errs.String(), isOver) {
		return false, true
	}
	ws := exit.Sys().(syscall.WaitStatus)
	require.True(t, ws.Signaled() && ws.Signal() == syscall.SIGKILL, "%v: %s", err, errs.String())
	return true, false
}

// A process dies at each point of a snapshot, of a recovery, of a transaction and of a trim, with
// both stores, and another process resumes: the rows are the oracle's. A run takes one of the stores for
// each point (proctest.Drawn), as in the two tests below.
func TestKilledAtEveryPoint(t *testing.T) {
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, 30_000, 2, 2*time.Second)
	queries := []int{5, 4, 8}
	for i, point := range walk.Points() {
		if strings.Contains(string(point), "savepoint") {
			continue // TestKilledInSavepoint
		}
		for j, kind := range []string{"pebble", "redis"} {
			if !proctest.Drawn(fmt.Sprintf("%s: %s/%s", t.Name(), point, kind), i+j, 2) {
				continue
			}
			all := queries[(i+j)%3 : (i+j)%3+1]
			if strings.HasPrefix(string(point), "transaction") {
				all = queries[j : j+2] // query 5 shows if something is counted twice
			}
			if os.Getenv("TAILRACE_SOAK") != "" {
				all = queries
			}
			for _, query := range all {
				t.Run(fmt.Sprintf("%s/%s/q%d", point, kind, query), func(t *testing.T) {
					t.Parallel()
					protocol := []string{"fused", "marker", "txn"}[(i+2*j)%3]
					switch kind, _, _ := strings.Cut(string(point), ":"); kind {
					case "transaction":
						protocol = "txn"
					case "trim": // in the log, which knows no protocol; the process must live long enough for some trims
						protocol = []string{"fused", "marker"}[(i+j)%2]
					}
					// On a busy machine little happens in the time of a run: then repeat it with a
					// longer one.
					for _, rate := range []int64{40_000, 10_000, 2_000} {
						if atPoint(t, point, kind, protocol, query, rate, inputs, in) {
							return
						}
					}
					require.Fail(t, "it never came there")
				})
			}
		}
	}
}

// The same for a checkpoint of a whole job and for restoring one.
func TestKilledAtEveryPointOfACheckpoint(t *testing.T) {
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, 30_000, 2, 2*time.Second)
	queries := []int{5, 4, 8}
	for i, point := range walk.OfCheckpoints() {
		for j, kind := range []string{"pebble", "redis"} {
			if !proctest.Drawn(fmt.Sprintf("%s: %s/%s", t.Name(), point, kind), i+j, 2) {
				continue
			}
			query := queries[(i+j)%3]
			t.Run(fmt.Sprintf("%s/%s/q%d", point, kind, query), func(t *testing.T) {
				t.Parallel()
				for _, rate := range []int64{20_000, 5_000, 1_000} { // as in TestKilledAtEveryPoint
					if atCheckpoint(t, point, kind, query, rate, inputs, in) {
						return
					}
				}
				require.Fail(t, "it never came there")
			})
		}
	}
}

// deaths returns when a process dies at a point: at one of three times that it comes there. The
// ordinary run leaves out the last with Redis, the second with the other store.
func deaths(kind string, times []int) []int {
	switch {
	case os.Getenv("TAILRACE_SOAK") != "":
		return times
	case kind == "redis":
		return times[:2]
	}
	return []int{times[0], times[2]}
}

func atCheckpoint(t *testing.T, point crash.Point, kind string, query int, rate int64, inputs []string, in *oracle.Input) (came bool) {
	dir := t.TempDir()
	v := victim{
		Dir: filepath.Join(dir, "log"), Store: filepath.Join(dir, "checkpoints"), Point: point,
		Settings: driver.Settings{
			Query: query, Inputs: inputs, Output: filepath.Join(dir, "out.jsonl"), WatermarkDelay: 3 * time.Second,
			Protocol: "aligned", Parallelism: 2, Groups: 8, CommitInterval: 2 * time.Millisecond, Logged: true, Rate: rate,
		},
	}
	if kind == "redis" {
		v.Store = redistest.Start(t).URL()
	}
	for _, times := range deaths(kind, []int{1, 4, 15}) {
		if restores(point) {
			// The process reaches this point only if there is something to restore.
			first := v
			first.Point, first.Times = walk.At(observe.CheckpointComplete), 6
			if point == walk.At(observe.RecoveryLoading) { // a base
				first.Point, first.Times = walk.At(observe.CheckpointFolded), 2
			}
			if !first.run(t) {
				break
			}
		}
		v.Times = times
		killed := v.run(t)
		came = came || killed
		if !killed {
			break
		}
	}
	v.Times, v.Settings.Rate = 0, 0
	require.False(t, v.run(t))
	sameAnswer(t, query, in, v.Settings.Output)
	return came
}

// restores reports whether a job reaches the point only if it has a checkpoint.
func restores(p crash.Point) bool {
	return p == walk.At(observe.RecoveryLoading) || p == walk.At(observe.CheckpointRestored) || p == walk.At(observe.CheckpointAttempt) || p == walk.At(observe.CheckpointBegins)
}

// atPoint reports whether the process reached the point.
func atPoint(t *testing.T, point crash.Point, kind, protocol string, query int, rate int64, inputs []string, in *oracle.Input) (came bool) {
	if kind == "redis" && point == crash.SnapshotUnsaved {
		t.Log("with Redis, what is written is durable") // the same point as the next
	}
	dir := t.TempDir()
	v := victim{
		Dir: filepath.Join(dir, "log"), Store: filepath.Join(dir, "checkpoints"), Point: point,
		Settings: driver.Settings{
			Query: query, Inputs: inputs, Output: filepath.Join(dir, "out.jsonl"), WatermarkDelay: 3 * time.Second,
			Protocol: protocol, Parallelism: 2, Groups: 8, CommitInterval: 2 * time.Millisecond,
			Logged: true, Rate: rate, // slow enough for work to be in progress at all times
		},
	}
	if kind == "redis" {
		v.Store = redistest.Start(t).URL()
	}
	times := []int{1, 4, 15}
	if strings.HasPrefix(string(point), "transaction") {
		times = []int{1, 50, 150} // the first times belong to instances that start, with no state yet
	}
	for _, times := range deaths(kind, times) {
		if strings.HasPrefix(string(point), "recovery") {
			// The process reaches this point only if there is something to recover.
			first := v
			first.Point, first.Times = walk.At(observe.SnapshotNamed), 3
			if !first.run(t) {
				break
			}
		}
		v.Times = times
		killed := v.run(t)
		came = came || killed
		if !killed {
			break
		}
	}
	v.Times = 0
	require.False(t, v.run(t))
	sameAnswer(t, query, in, v.Settings.Output)
	return came
}

// A process dies at each point of a savepoint and resumes as if there had been none; a process that
// starts from a savepoint dies at each point of that, and the next one starts from it again.
func TestKilledInSavepoint(t *testing.T) {
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, 30_000, 2, 2*time.Second)
	for i, point := range walk.Points() {
		if !strings.Contains(string(point), "savepoint") {
			continue
		}
		for j, kind := range []string{"pebble", "redis"} {
			if !proctest.Drawn(fmt.Sprintf("%s: %s/%s", t.Name(), point, kind), i+j, 2) {
				continue
			}
			query := []int{5, 4, 8}[(i+j)%3]
			t.Run(fmt.Sprintf("%s/%s/q%d", point, kind, query), func(t *testing.T) {
				t.Parallel()
				// On a busy machine a job ends before its savepoint is made: then repeat it with a
				// longer one.
				for _, rate := range []int64{6_000, 1_500, 300} {
					if inSavepoint(t, point, kind, query, rate, inputs, in) {
						return
					}
				}
				require.Fail(t, "it was over too soon")
			})
		}
	}
}

// inSavepoint reports whether there was time for the savepoint.
func inSavepoint(t *testing.T, point crash.Point, kind string, query int, rate int64, inputs []string, in *oracle.Input) bool {
	dir := t.TempDir()
	protocols := []string{"fused", "marker"}
	v := victim{
		Dir: filepath.Join(dir, "log"), Store: filepath.Join(dir, "checkpoints"), Point: point, Interrupted: 200 * time.Millisecond,
		Settings: driver.Settings{
			Query: query, Inputs: inputs, Output: filepath.Join(dir, "out.jsonl"), WatermarkDelay: 3 * time.Second,
			Protocol: protocols[query%2], Parallelism: 2, Groups: 8, CommitInterval: 2 * time.Millisecond,
			Logged: true, Rate: rate, Savepoint: "s", // much is left when the savepoint is made
		},
	}
	if kind == "redis" {
		v.Store = redistest.Start(t).URL() + "?settles=200ms"
	}
	from := strings.HasPrefix(string(point), "beginning")
	if !from {
		v.Times = 1
		killed, over := v.interrupted(t)
		if over {
			return false
		}
		require.True(t, killed, "it never came there")
	}
	v.Times = 0
	if point != walk.At(observe.SavepointMade) { // now it is made
		killed, over := v.interrupted(t)
		if over {
			return false
		}
		require.False(t, killed)
	}
	if from {
		w := v
		w.Dir, w.Interrupted = filepath.Join(dir, "second"), 0
		w.Settings.Output = filepath.Join(w.Dir, "out.jsonl")
		require.NoError(t, os.Mkdir(w.Dir, 0o755))
		written, err := os.ReadFile(v.Settings.Output)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(w.Settings.Output, written, 0o644))
		w.Dir = filepath.Join(w.Dir, "log")
		w.Settings.Job, w.Settings.From, w.Settings.Savepoint = "second", "s", ""
		w.Settings.Parallelism, w.Settings.Protocol, w.Settings.Rate = 3, protocols[(query+1)%2], 0
		for _, times := range []int{1, 3} {
			w.Times = times
			require.True(t, w.run(t), "it never came there")
		}
		w.Times = 0
		require.False(t, w.run(t))
		sameAnswer(t, query, in, w.Settings.Output)
	}
	v.Interrupted, v.Settings.Savepoint, v.Settings.Rate = 0, "", 0
	require.False(t, v.run(t))
	sameAnswer(t, query, in, v.Settings.Output)
	return true
}
