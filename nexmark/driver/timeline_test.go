package driver

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// A measurement's timeline covers its measured time in steps of a tenth of a second, and accounts
// for the events and rows of the report; a failure does not make events count twice.
func TestTimeline(t *testing.T) {
	log := mem.New(mem.Options{})
	var all []Moment
	s := BenchSettings{
		Settings: Settings{
			Query: 1, Partitions: 1, Parallelism: 1, Groups: 4, Protocol: "fused", Eager: true, CommitInterval: 5 * time.Millisecond,
			Generator: generator.Config{Rate: 1000}, Timeline: func(m Moment) error { all = append(all, m); return nil },
		},
		Warmup: 300 * time.Millisecond, Duration: time.Second, FailAt: 500 * time.Millisecond, FailStage: "events",
	}
	r, err := Bench(t.Context(), log, s, nil)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	var events, rows int64
	at, latencies := MS(0), 0
	for _, m := range all {
		require.Greater(t, m.At, at)
		at = m.At
		events, rows = events+m.Events, rows+m.Rows
		require.NotZero(t, m.RSS)
		if m.Visible.P50.Seen() {
			latencies++
			require.LessOrEqual(t, m.Visible.P50, m.Visible.Max)
		}
	}
	require.LessOrEqual(t, at, MS(r.Seconds*1000)+100) // the last moment may come while the report is made
	require.NotZero(t, latencies)
	require.Positive(t, rows)
	require.LessOrEqual(t, rows, r.Outputs)
	require.Positive(t, events)
	require.LessOrEqual(t, float64(events), r.Achieved*r.Seconds+300)

	// Without a rate there is no latency.
	all = nil
	s.Max, s.FailAt, s.FailStage, s.Lead = true, 0, "", 1<<20
	s.Warmup, s.Duration = 0, 400*time.Millisecond
	_, err = Bench(t.Context(), mem.New(mem.Options{}), s, nil)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, m := range all {
		require.False(t, m.Visible.P50.Seen() || m.Emit.Max.Seen())
	}

	// A timeline that cannot be written ends the measurement with that error.
	full := errors.New("the disk is full")
	s.Timeline = func(Moment) error { return full }
	_, err = Bench(t.Context(), mem.New(mem.Options{}), s, nil)
	require.ErrorIs(t, err, full)
}

// A task that restarts counts again from its last commit: what it repeats is no progress.
func TestTimelineRepeatsNothing(t *testing.T) {
	counts := []int64{100, 150, 40, 90, 170, 180}
	at := -1
	var got []int64
	done := make(chan struct{})
	r := recorder{
		events: func() int64 { at = min(at+1, len(counts)-1); return counts[at] }, rows: func() int64 { return 0 }, backlog: func() int64 { return 7 }, tasks: func() int { return 5 },
		spent: func() spent { return spent{} },
		to: func(m Moment) error {
			require.EqualValues(t, 7, m.Backlog)
			require.EqualValues(t, 5, m.Tasks)
			if got = append(got, m.Events); len(got) == len(counts)-1 {
				close(done)
			}
			return nil
		},
	}
	r.start()
	<-done
	require.NoError(t, r.stop())
	require.Equal(t, []int64{50, 0, 0, 20, 10}, got[:5])
}

func TestTimelineOfARun(t *testing.T) {
	var all []Moment
	s := Settings{
		Query: 1, Partitions: 1, Parallelism: 1, Groups: 4, Protocol: "fused", Generator: generator.Config{Events: 2000, Rate: 1000, Base: generator.DefaultBase}, Rate: 4000,
		Output: filepath.Join(t.TempDir(), "rows"), Timeline: func(m Moment) error { all = append(all, m); return nil },
	}
	sum, err := Run(t.Context(), mem.New(mem.Options{}), s, nil)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	events, rows := uint64(0), uint64(0)
	for _, m := range all {
		events, rows = events+uint64(m.Events), rows+uint64(m.Rows)
	}
	require.Positive(t, events)
	require.LessOrEqual(t, events, sum.Events)
	require.LessOrEqual(t, rows, sum.Rows)
}

// What tasks have spent their time on is what is new since the moment before; an instance that has ended
// takes nothing away.
func TestSpent(t *testing.T) {
	before := spentOf([]tasks.Status{{SleptMS: 1000, MovingMS: 5, WaitingMS: 1}, {SleptMS: 500}})
	now := spentOf([]tasks.Status{{SleptMS: 1060, MovingMS: 25, WaitingMS: 11}, {SleptMS: 590}, {SleptMS: 10}})
	moving, waiting, job := now.since(&before, 100)
	require.Equal(t, []MS{20, 10, 120}, []MS{moving, waiting, job}) // of 300 ms of three tasks, 160 asleep
	again := spentOf([]tasks.Status{{}, {}})
	moving, waiting, job = again.since(&now, 100)
	require.Equal(t, []MS{0, 0, 200}, []MS{moving, waiting, job})
}

// A timeline's file keeps every value, and what was not measured stays so.
func TestTimelineFile(t *testing.T) {
	all := []Moment{
		{At: 100.125, Events: 7, Rows: 3, Visible: Short{1.5, 2, 3}, Emit: unseen(), Backlog: 1 << 40, RSS: 12345, Tasks: 8, Job: 90.5, Moving: 3, Waiting: 4},
		{At: 200, Visible: unseen(), Emit: Short{0, 0.001, 3_600_000}},
	}
	var b bytes.Buffer
	require.NoError(t, WriteTimelineHead(&b))
	for i := range all {
		require.NoError(t, WriteMoment(&b, &all[i]))
	}
	const head = "t_ms,events,rows,visible_p50_ms,visible_p99_ms,visible_max_ms,emit_p50_ms,emit_p99_ms,emit_max_ms,backlog_bytes,rss_bytes,tasks,job_ms,moving_ms,waiting_ms\n"
	require.Equal(t, head+"100.125,7,3,1.5,2,3,,,,1099511627776,12345,8,90.5,3,4\n200,0,0,,,,0,0.001,3600000,0,0,0,0,0,0\n", b.String())
	path := filepath.Join(t.TempDir(), "timeline.csv")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	back, err := ReadTimeline(path)
	require.NoError(t, err)
	require.Len(t, back, 2)
	b.Reset()
	for i := range back {
		require.NoError(t, WriteMoment(&b, &back[i]))
	}
	require.Equal(t, "100.125,7,3,1.5,2,3,,,,1099511627776,12345,8,90.5,3,4\n200,0,0,,,,0,0.001,3600000,0,0,0,0,0,0\n", b.String())
	for text, want := range map[string]string{
		"t,events\n":   "its first line is not t_ms,",
		head + "1,2\n": ":2: 2 values, not 15",
		head + "1,2,3,4,5,6,7,8,9,10,11,12,13,14,x\n": ":2: ",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, err := ReadTimeline(path)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, want)
	}
}
