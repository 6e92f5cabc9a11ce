package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/oracle"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
)

// rescaling is a job that is rescaled in several processes, all but the last of which are killed.
type rescaling struct {
	query  int
	in     *oracle.Input
	out    string
	victim victim
	goals  []int // what the rescales lead to, one after the other
}

// rescaledJob returns a job whose stage with the most key groups is rescaled twice or more often while it
// reads a file.
func rescaledJob(t *testing.T, query int, protocol, mode string, rate int64, goals []int, inputs []string, in *oracle.Input) *rescaling {
	dir := t.TempDir()
	r := &rescaling{query: query, in: in, out: filepath.Join(dir, "out"), goals: goals}
	r.victim = victim{Dir: filepath.Join(dir, "log"), Store: filepath.Join(dir, "snapshots"), Settings: driver.Settings{
		Query: query, Inputs: inputs, Output: r.out, Rate: rate, Protocol: protocol, WatermarkDelay: 3 * time.Second, Parallelism: 2, Groups: 8,
		CommitInterval: 3 * time.Millisecond,
	}}
	s := &r.victim.Settings
	for i, n := range goals {
		s.Rescales = append(s.Rescales, driver.Rescale{Events: uint64(1000 * (i + 1)), Tasks: n, Mode: mode, Batch: 2})
	}
	require.NoError(t, s.CheckRescales())
	return r
}

// start starts the next process.
func (r *rescaling) start(t *testing.T) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	b, err := json.Marshal(r.victim)
	require.NoError(t, err)
	cmd, out, errs = proctest.Command(t, os.Args[0]), new(bytes.Buffer), new(bytes.Buffer)
	cmd.Env = append(os.Environ(), asVictim+"="+string(b))
	cmd.Stdout, cmd.Stderr = out, errs
	require.NoError(t, cmd.Start())
	hung := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }) // it shows where it waits
	t.Cleanup(func() { hung.Stop() })
	return cmd, out, errs
}

// amidst reports whether a process has died between a rescale's first step, as far as it has told them, and
// its last one.
func amidst(told *bytes.Buffer) bool {
	last := ""
	for line := range strings.Lines(told.String()) {
		last = strings.TrimSpace(line)
	}
	return slices.Contains(walk.OfRescales(), crash.Point(last)) && last != string(observe.RescaleSettled)
}

// killedBy reports whether the process was killed; it must have ended well otherwise.
func killedBy(t *testing.T, err error, errs *bytes.Buffer) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
		return false
	}
	ws := exit.Sys().(syscall.WaitStatus)
	require.True(t, ws.Signaled() && ws.Signal() == syscall.SIGKILL, "%v: %s", err, errs)
	return true
}

// right checks what the last process has said and written: the rows are the oracle's. It reports whether
// all goals are reached; those for which there was no input left are not.
func (r *rescaling) right(t *testing.T, said []byte) (reached bool) {
	sameAnswer(t, r.query, r.in, r.out)
	var all []driver.Rescaled
	require.NoError(t, json.Unmarshal(said, &all), string(said))
	require.Len(t, all, len(r.goals))
	for i := range all {
		if all[i].NotDone != "" {
			require.Regexp(t, "^the run (had ended|ended before: .*)$", all[i].NotDone)
			return false
		}
		require.Equal(t, r.goals[i], all[i].To)
	}
	return true
}

// A process dies at each point of a rescale, when it is there for the first, second or third time, under
// both protocols and all modes, and another one resumes: it reaches the goal, and the rows are the
// oracle's. A run takes one of the times for each point (proctest.Drawn).
func TestKilledAtEveryPointOfARescale(t *testing.T) {
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, 20_000, 2, 2*time.Second)
	for i, point := range walk.OfRescales() {
		for times := 1; times <= 3; times++ {
			if !proctest.Drawn(fmt.Sprintf("%s: %s/%d", t.Name(), point, times), 2*i+times, 3) {
				continue
			}
			mode := rescale.Modes[(i+times)%len(rescale.Modes)].Name
			if mode == rescale.ModeRestart && (point == walk.At(observe.RescaleTaking) || point == walk.At(observe.RescaleTaken)) {
				mode = rescale.ModeOrderUnaware // it takes nothing
			}
			protocol := []string{"fused", "marker"}[(i+times)%2]
			t.Run(fmt.Sprintf("%s/%d/%s/%s", point, times, protocol, mode), func(t *testing.T) {
				t.Parallel()
				// On a busy machine the input may end before: then repeat it with a slower one.
				for _, rate := range []int64{20_000, 4_000, 1_000} {
					if killedAt(t, point, times, rescaledJob(t, []int{5, 8, 4}[(i+times)%3], protocol, mode, rate, []int{4, 1, 3}, inputs, in)) {
						return
					}
				}
				require.Fail(t, "the goal is not reached")
			})
		}
	}
}

// killedAt reports whether the process came to the point, and the next one to its goals.
func killedAt(t *testing.T, point crash.Point, times int, r *rescaling) bool {
	r.victim.Point, r.victim.Times = point, times
	cmd, _, errs := r.start(t)
	if !killedBy(t, cmd.Wait(), errs) {
		return false
	}
	r.victim.Times = 0
	cmd, said, errs := r.start(t)
	require.False(t, killedBy(t, cmd.Wait(), errs))
	return r.right(t, said.Bytes())
}

// A process that rescales all the time is killed with SIGKILL at random moments, and started again,
// until it ends: it reaches the goals while there is input, and the rows are the oracle's.
// TAILRACE_KILLS=N repeats that until N of these moments were in the middle of a rescale (make rescale-kills).
func TestKilledWhileRescaling(t *testing.T) {
	wanted := 3
	if v := os.Getenv("TAILRACE_KILLS"); v != "" {
		var err error
		wanted, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, 20_000, 2, 2*time.Second)
	total, moving, jobs, reached := 0, 0, 0, 0
	for seed := uint64(0); moving < wanted && total < 10*wanted; seed++ {
		rng := rand.New(rand.NewPCG(seed, 23))
		var goals []int
		for range 8 {
			goals = append(goals, 1+rng.IntN(8))
		}
		goals = slices.Compact(goals)
		mode, protocol, query := rescale.Modes[rng.IntN(len(rescale.Modes))].Name, []string{"fused", "marker"}[seed%2], 3+rng.IntN(6)
		t.Run(fmt.Sprintf("%d/q%d/%s/%s", seed, query, protocol, mode), func(t *testing.T) {
			r := rescaledJob(t, query, protocol, mode, 15_000, goals, inputs, in)
			kills := 0
			for {
				cmd, said, errs := r.start(t)
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				var after <-chan time.Time
				if kills < 4 && moving < wanted {
					after = time.After(time.Duration(100+rng.IntN(400)) * time.Millisecond)
				}
				var err error
				select {
				case <-after:
					_ = cmd.Process.Signal(syscall.SIGKILL) // it may just have ended
					err = <-ended
				case err = <-ended:
				}
				if killedBy(t, err, errs) {
					kills, total = kills+1, total+1
					if amidst(errs) {
						moving++
					}
					continue
				}
				if jobs++; r.right(t, said.Bytes()) {
					reached++
				}
				break
			}
			t.Logf("killed %d times", kills)
			require.NoError(t, os.RemoveAll(r.victim.Dir))
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("killed %d times, %d of them between the steps of a rescale, no row lost or doubled; %d of %d jobs had input until all goals were reached", total, moving, reached, jobs)
	if !t.Failed() {
		require.GreaterOrEqual(t, moving, wanted, "too few processes died in the middle of a rescale: the test shows nothing")
		require.Positive(t, reached, "no job lived until its goals were reached: the test shows nothing")
	}
}
