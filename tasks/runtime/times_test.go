package runtime

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
)

// The table of intervals: what a task waits for, by its kind and by whether its input is consumed.
func TestIntervals(t *testing.T) {
	const commit, flush = 80 * time.Millisecond, 16 * time.Millisecond
	for _, x := range []struct {
		name                  string
		source, flushes, idle bool
		commit, flush         time.Duration
	}{
		{"reader, behind", false, false, false, commit, flush},
		{"reader, idle: nothing else can share its commit", false, false, true, commit / idleShare, flush},
		{"reader that flushes, behind", false, true, false, commit, flush},
		{"reader that flushes, idle: its flush is early, its marker is not", false, true, true, commit, flush / idleShare},
		{"source: its commit batches items", true, false, false, flush, flush},
		{"source, idle", true, false, true, flush, flush},
		{"source that flushes", true, true, false, commit, flush},
		{"source that flushes, idle", true, true, true, commit, flush},
	} {
		c, f := (&times{commitEvery: commit, flushEvery: flush, source: x.source, flushes: x.flushes}).intervals(x.idle)
		require.Equal(t, []time.Duration{x.commit, x.flush}, []time.Duration{c, f}, x.name)
	}
}

// A task sleeps until the first thing that it has to do by the clock, and not at all once that is
// due; it looks at the wall clock each tickEvery, whatever it waits for.
func TestWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(1_000, 0)
		at := func(what string) time.Time {
			return start.Add(rapid.Custom(func(t *rapid.T) time.Duration {
				return time.Duration(rapid.IntRange(-200, 200).Draw(t, "ms")) * time.Millisecond
			}).Draw(t, what))
		}
		x := &times{
			now: at("now"), commit: at("commit"), flush: at("flush"), tick: at("tick"),
			commitEvery: time.Duration(rapid.IntRange(1, 300).Draw(t, "commit every")) * time.Millisecond,
			flushEvery:  time.Duration(rapid.IntRange(1, 300).Draw(t, "flush every")) * time.Millisecond,
			flushes:     rapid.Bool().Draw(t, "flushes"), source: rapid.Bool().Draw(t, "source"),
		}
		idle, dirty := rapid.Bool().Draw(t, "idle"), rapid.Bool().Draw(t, "dirty")
		commit, flush := x.intervals(idle)
		due := func(now time.Time) bool { // something
			return now.Sub(x.tick) >= tickEvery || dirty && (now.Sub(x.commit) >= commit || x.flushes && now.Sub(x.flush) >= flush)
		}
		wait := x.wait(idle, dirty)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.True(t, due(x.now.Add(wait)), "it wakes up, and nothing is due")
		require.False(t, wait > 0 && due(x.now.Add(wait-1)), "it sleeps while something is due")
	})
}

// The wall clock that operators see does not go back: not when the machine's does, and not behind
// what an earlier instance has read on another machine, which is logged if it is much.
func TestWallClock(t *testing.T) {
	ms := int64(5_000)
	var lines strings.Builder
	task := &task{assignment: assignment{spec: &exec.StageSpec{Name: "s"}}, cfg: &Config{
		Clock:  func() time.Time { return time.UnixMilli(ms) },
		Logger: slog.New(slog.NewTextHandler(&lines, nil)),
	}}
	read := func(clock, want int64) {
		t.Helper()
		ms = clock
		require.Equal(t, want, task.wall())
	}
	task.restoreClock(0) // there was no instance before
	read(5_000, 5_000)
	read(4_000, 5_000)
	read(5_001, 5_001)
	task.restoreClock(5_900)
	require.Empty(t, lines.String())
	read(5_500, 5_900)
	task.restoreClock(9_000)
	require.Contains(t, lines.String(), "behind=3.5s")
	read(5_500, 9_000)
	task.restoreClock(8_000)
	read(8_500, 9_000)
	read(9_001, 9_001)
}
