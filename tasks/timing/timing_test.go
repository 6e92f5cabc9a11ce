package timing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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
		c, f := (&Times{CommitEvery: commit, FlushEvery: flush, Source: x.source, Flushes: x.flushes}).Intervals(x.idle)
		require.Equal(t, []time.Duration{x.commit, x.flush}, []time.Duration{c, f}, x.name)
	}
}

// A task sleeps until the first thing that it has to do by the clock, and not at all once that is
// due; it looks at the wall clock each TickEvery, whatever it waits for.
func TestWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(1_000, 0)
		at := func(what string) time.Time {
			return start.Add(rapid.Custom(func(t *rapid.T) time.Duration {
				return time.Duration(rapid.IntRange(-200, 200).Draw(t, "ms")) * time.Millisecond
			}).Draw(t, what))
		}
		x := &Times{
			Now: at("now"), Commit: at("commit"), Flush: at("flush"), Tick: at("tick"),
			CommitEvery: time.Duration(rapid.IntRange(1, 300).Draw(t, "commit every")) * time.Millisecond,
			FlushEvery:  time.Duration(rapid.IntRange(1, 300).Draw(t, "flush every")) * time.Millisecond,
			Flushes:     rapid.Bool().Draw(t, "flushes"), Source: rapid.Bool().Draw(t, "source"),
		}
		idle, dirty := rapid.Bool().Draw(t, "idle"), rapid.Bool().Draw(t, "dirty")
		commit, flush := x.Intervals(idle)
		due := func(now time.Time) bool { // something
			return now.Sub(x.Tick) >= TickEvery || dirty && (now.Sub(x.Commit) >= commit || x.Flushes && now.Sub(x.Flush) >= flush)
		}
		wait := x.Wait(idle, dirty)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.True(t, due(x.Now.Add(wait)), "it wakes up, and nothing is due")
		require.False(t, wait > 0 && due(x.Now.Add(wait-1)), "it sleeps while something is due")
	})
}
