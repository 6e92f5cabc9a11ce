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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/redistest"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/oracle"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks/checkpoint"
)

// asVictim holds, as JSON, what a process of this test binary is to run until it is
// killed: a victim.
const asVictim = "NEXMARK_TEST_VICTIM"

type victim struct {
	Settings driver.Settings
	Dir      string // of the log
	Store    string // of snapshots: a directory or a URL
	Point    crash.Point
	Times    int // come there so many times, then die; 0: do not
}

// beVictim runs a query on a log of small segments, with trims and snapshots all the
// time, and dies as it is told.
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
	v.Settings.Checkpoints, v.Settings.SnapshotInterval = store, 3*time.Millisecond
	v.Settings.TrimBytes, v.Settings.TrimInterval = 1, time.Millisecond
	_, err = driver.Run(context.Background(), log, v.Settings, nil)
	if err = errors.Join(err, store.Close(), log.Close()); err != nil {
		return fail(err)
	}
	return 0
}

// run runs the victim and returns whether it was killed.
func (v victim) run(t *testing.T) (killed bool) {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asVictim+"="+string(b))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err = cmd.Run()
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	ws := exit.Sys().(syscall.WaitStatus)
	require.True(t, ws.Signaled() && ws.Signal() == syscall.SIGKILL, "%v: %s", err, errs.String())
	return true
}

// A process dies at each point of a snapshot, of a recovery and of a trim, with both
// stores, and another goes on: the rows are the oracle's.
func TestKilledAtEveryPoint(t *testing.T) {
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, 30_000, 2, 2*time.Second)
	queries := []int{5, 4, 8}
	for i, point := range crash.Points() {
		for j, kind := range []string{"pebble", "redis"} {
			all := queries[(i+j)%3 : (i+j)%3+1]
			if os.Getenv("TAILRACE_SOAK") != "" {
				all = queries
			}
			for _, query := range all {
				t.Run(fmt.Sprintf("%s/%s/q%d", point, kind, query), func(t *testing.T) {
					t.Parallel()
					atPoint(t, point, kind, query, inputs, in)
				})
			}
		}
	}
}

// The same, of a checkpoint of a whole job and of going back to one.
func TestKilledAtEveryPointOfACheckpoint(t *testing.T) {
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, 30_000, 2, 2*time.Second)
	queries := []int{5, 4, 8}
	for i, point := range crash.OfCheckpoints() {
		for j, kind := range []string{"pebble", "redis"} {
			query := queries[(i+j)%3]
			t.Run(fmt.Sprintf("%s/%s/q%d", point, kind, query), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				v := victim{
					Dir: filepath.Join(dir, "log"), Store: filepath.Join(dir, "checkpoints"), Point: point,
					Settings: driver.Settings{
						Query: query, Inputs: inputs, Output: filepath.Join(dir, "out.jsonl"), WatermarkDelay: 3 * time.Second,
						Protocol: "aligned", Parallelism: 2, Groups: 8, CommitInterval: 2 * time.Millisecond, Logged: true, Rate: 20_000,
					},
				}
				if kind == "redis" {
					v.Store = redistest.Start(t).URL()
				}
				for _, times := range []int{1, 4, 15} {
					if restores(point) {
						// It comes there when there is something to go back to.
						first := v
						first.Point, first.Times = crash.CheckpointComplete, 6
						if point == crash.RecoveryLoading { // a base
							first.Point, first.Times = crash.CheckpointFolded, 2
						}
						if !first.run(t) {
							break
						}
					}
					v.Times = times
					killed := v.run(t)
					if times == 1 {
						require.True(t, killed, "it never came there")
					}
					if !killed {
						break
					}
				}
				v.Times = 0
				require.False(t, v.run(t))
				sameAnswer(t, query, in, v.Settings.Output)
			})
		}
	}
}

// restores reports whether a job that has no checkpoint does not come to a point.
func restores(p crash.Point) bool {
	return p == crash.RecoveryLoading || p == crash.CheckpointRestored || p == crash.CheckpointAttempt || p == crash.CheckpointBegins
}

func atPoint(t *testing.T, point crash.Point, kind string, query int, inputs []string, in *oracle.Input) {
	if kind == "redis" && point == crash.SnapshotUnsaved {
		t.Log("with Redis, what is written is durable") // the same point as the next
	}
	dir := t.TempDir()
	v := victim{
		Dir: filepath.Join(dir, "log"), Store: filepath.Join(dir, "checkpoints"), Point: point,
		Settings: driver.Settings{
			Query: query, Inputs: inputs, Output: filepath.Join(dir, "out.jsonl"), WatermarkDelay: 3 * time.Second,
			Protocol: []string{"fused", "marker"}[query%2], Parallelism: 2, Groups: 8, CommitInterval: 2 * time.Millisecond,
			Logged: true, Rate: 40_000, // slow enough for something to be under way always
		},
	}
	if kind == "redis" {
		v.Store = redistest.Start(t).URL()
	}
	for _, times := range []int{1, 4, 15} {
		if strings.HasPrefix(string(point), "recovery") {
			// It comes there when there is something to recover.
			first := v
			first.Point, first.Times = crash.SnapshotNamed, 3
			if !first.run(t) {
				break
			}
		}
		v.Times = times
		killed := v.run(t)
		if times == 1 {
			require.True(t, killed, "it never came there")
		}
		if !killed {
			break
		}
	}
	v.Times = 0
	require.False(t, v.run(t))
	sameAnswer(t, query, in, v.Settings.Output)
}
