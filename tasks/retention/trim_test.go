package retention

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
)

// Under txn a marker also says from where on the transaction stream is kept.
func TestTrimTransactions(t *testing.T) {
	plan := &exec.Plan{
		Streams: []exec.StreamSpec{{Name: "rows"}},
		Stages:  []exec.StageSpec{{Name: "source", Partitions: 1, Outputs: []int{0}}},
	}
	l, err := layout.New(plan, "j", 4, 1)
	require.NoError(t, err)
	p := Points(l, Marks{Tasks: [][]Mark{{{LSN: 90, Transactions: 80}}}}, Held{})
	require.Contains(t, p, Point{What: "transactions of source/0", Tags: []sharedlog.Tag{"Z/j/source/0"}, Before: 80, Held: "its newest marker"})
}

// The change logs of a task are those of the key groups that it had at its marker, whatever the
// layout says.
func TestTrimWhatTheMarkerOwns(t *testing.T) {
	plan := &exec.Plan{
		Streams: []exec.StreamSpec{{Name: "bids"}},
		Stages:  []exec.StageSpec{{Name: "source", Partitions: 1, Outputs: []int{0}}, {Name: "count", Inputs: []int{0}}},
	}
	l, err := layout.New(plan, "j", 4, 2)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, l.Owned(1, 0))
	points := Points(l, Marks{Tasks: [][]Mark{{{}}, {{LSN: 80, Low: 70, Kept: 40, Owned: []int{0, 3}}, {}}}}, Held{})
	i := slices.IndexFunc(points, func(p Point) bool { return p.What == "state of count/0" })
	require.Equal(t, []sharedlog.Tag{"C/j/count/0", "C/j/count/3"}, points[i].Tags)
	require.EqualValues(t, 40, points[i].Before)
	i = slices.IndexFunc(points, func(p Point) bool { return p.What == "state of count/1" })
	require.Empty(t, points[i].Tags, "it has no marker")
}

// How far a job's tags are trimmed, given the newest markers of its tasks.
func TestTrimPoints(t *testing.T) {
	plan := &exec.Plan{
		Streams: []exec.StreamSpec{{Name: "bids"}, {Name: "rows"}},
		Stages: []exec.StageSpec{
			{Name: "source", Partitions: 1, Outputs: []int{0}},
			{Name: "count", Inputs: []int{0}, Outputs: []int{1}},
		},
	}
	l, err := layout.New(plan, "j", 4, 2)
	require.NoError(t, err)
	for _, c := range []struct {
		name         string
		source       Mark
		first, other Mark
		want         string
		held         Held
	}{
		{"nothing was committed", Mark{}, Mark{}, Mark{}, "0 bids 0 by count/0, logs 0 0 0, state 0 0 0", Held{}},
		{"the slowest reader holds the stream (G2: its low, not its marker)", Mark{LSN: 90}, Mark{LSN: 80, Low: 70}, Mark{LSN: 100, Low: 30}, "0 bids 30 by count/1, logs 90 80 100, state 0 0 0", Held{}},
		{"a task without a marker holds everything it reads", Mark{LSN: 90}, Mark{LSN: 80, Low: 70}, Mark{}, "0 bids 0 by count/1, logs 90 80 0, state 0 0 0", Held{}},
		{"the change log ends at what is kept (G3)", Mark{LSN: 90}, Mark{LSN: 80, Low: 70, Kept: 40}, Mark{LSN: 100, Low: 75}, "0 bids 70 by count/0, logs 90 80 100, state 0 40 0", Held{}},
		{"what has ended needs no state", Mark{LSN: 90, Ended: true}, Mark{LSN: 80, Low: 70, Ended: true}, Mark{LSN: 100, Low: 75, Kept: 50}, "0 bids 70 by count/0, logs 90 80 100, state 90 80 50", Held{}},
		{"a reader holds the change logs, as low as it says (G4)", Mark{LSN: 90}, Mark{LSN: 80, Low: 70, Kept: 40}, Mark{LSN: 100, Low: 75, Kept: 50}, "0 bids 70 by count/0, logs 90 80 100, state 0 40 45", Held{45, "standby"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var logs, state []string
			var bids string
			rows := "none"
			for _, p := range Points(l, Marks{Tasks: [][]Mark{{c.source}, {c.first, c.other}}}, c.held) {
				switch kind, _, _ := strings.Cut(p.What, " "); {
				case p.What == "stream bids":
					bids = fmt.Sprintf("%d by %s", p.Before, p.Held)
					require.Len(t, p.Tags, 5)
				case p.What == "stream rows":
					rows = fmt.Sprint(p.Before)
					require.Equal(t, "no stage consumes it", p.Held)
				case kind == "log":
					logs = append(logs, fmt.Sprint(p.Before))
				case kind == "state":
					state = append(state, fmt.Sprint(p.Before))
				}
			}
			require.Equal(t, c.want, fmt.Sprintf("%s bids %s, logs %s, state %s", rows, bids, strings.Join(logs, " "), strings.Join(state, " ")))
		})
	}
}

// A plan is kept until the tasks that begin by it have made a marker: those that read it, and those of a source.
func TestTrimPlans(t *testing.T) {
	plan := &exec.Plan{
		Streams: []exec.StreamSpec{{Name: "bids"}, {Name: "rows"}},
		Stages: []exec.StageSpec{
			{Name: "source", Partitions: 2, Outputs: []int{0}},
			{Name: "count", Inputs: []int{0}, Outputs: []int{1}},
			{Name: "out", Inputs: []int{1}, Sink: true},
		},
	}
	l, err := layout.New(plan, "j", 4, 2)
	require.NoError(t, err)
	for _, c := range []struct {
		name          string
		source, count Mark
		want          string
	}{
		{"all are above", Mark{LSN: 50}, Mark{LSN: 70, Low: 60}, "60 the newest"},
		{"a task has not read the newest", Mark{LSN: 50}, Mark{LSN: 70, Low: 59}, "0 count/1"},
		{"a task has not started", Mark{LSN: 50}, Mark{}, "0 count/1"},
		{"a task of a source has not started", Mark{}, Mark{LSN: 70, Low: 60}, "0 source/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := Marks{Tasks: [][]Mark{{{LSN: 40}, c.source}, {{LSN: 80, Low: 75}, c.count}, {{}}}, Plan: 60, Rescaled: true}
			points := Points(l, of, Held{})
			p := points[slices.IndexFunc(points, func(p Point) bool { return p.What == "plans" })]
			require.Equal(t, c.want, fmt.Sprint(p.Before, " ", p.Held))
		})
	}
}
