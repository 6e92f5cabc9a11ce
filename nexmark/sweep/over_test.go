package sweep

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/sweep/overlay"
)

// A series of kind over has a case for each value of whatever it varies, a check of each answer, and
// a figure of bars for each quantity.
func TestOver(t *testing.T) {
	for _, c := range []struct {
		name, series string
		commands     []string // a part of each, in order
		categories   []string
		files        []string
		titles       []string
	}{
		{
			"a flag", "{over: key-groups, settings: {key-groups: [64, 8], flush: 5ms}, queries: [1, 5], rates: 1000}",
			[]string{"--key-groups=64", "--key-groups=8", "--key-groups=64", "--key-groups=8"},
			[]string{"64", "8"},
			[]string{"over-1-key-groups-visible-p50.svg", "over-1-key-groups-visible-p99.svg"},
			[]string{"Q1", "Q5"},
		},
		{
			"commit intervals", "{over: commit-intervals, commit-intervals: [10ms, 1s], workloads: count, rates: max}",
			[]string{"--commit-interval=10ms", "--commit-interval=1s"},
			[]string{"10ms", "1s"},
			[]string{"over-1-commit-intervals-throughput.svg", "over-1-commit-intervals-log-bytes.svg"},
			[]string{"count"},
		},
		{
			"what is a word elsewhere", "{over: source, source: [chained, log], emit: final, queries: 2, rates: [1000, 2000], values: [emit-p99, memory]}",
			[]string{"--source=chained", "--source=log", "--source=chained", "--source=log"},
			[]string{"chained", "log"},
			[]string{"over-1-source-emit-p99.svg", "over-1-source-memory.svg"},
			[]string{"Q2, 1k/s", "Q2, 2k/s"},
		},
		{
			"rates", "{over: rates, rates: [max, 1000], queries: 2, values: cpu}",
			[]string{"--rate=max", "--rate=1000"},
			[]string{"max", "1000"},
			[]string{"over-1-rates-cpu.svg"},
			[]string{"Q2"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "check: {events: 200}\ndefaults: {protocols: [fused], kind: over}\nseries: [" + c.series + "]\n"
			rows, err := runner(t, t.TempDir(), text, &machine{}).Run(t.Context())
			require.NoError(t, err)
			var commands []string
			keys := map[string]bool{}
			for _, row := range rows {
				require.Empty(t, row.Failed)
				require.False(t, keys[row.Key], row.Key)
				keys[row.Key] = true
				if row.Case.Check == 0 {
					commands = append(commands, CommandText(row.Command))
					row.Bench.Achieved, row.Bench.BytesPerEvent, row.Bench.CPUPerEvent, row.Bench.RSS = 1000, 100, 900, 64<<20
				} else {
					require.True(t, row.Check.Right)
				}
			}
			require.Len(t, commands, len(c.commands))
			for i, part := range c.commands {
				require.Contains(t, commands[i], part)
			}
			var files []string
			for _, d := range Figures(rows, overlay.Results{}) {
				files = append(files, d.File)
				var titles []string
				for _, p := range d.Figure.Panels {
					titles = append(titles, p.Title)
					require.Equal(t, c.categories, p.Categories)
					require.Len(t, p.Lines[0].Points, len(c.categories))
				}
				require.Equal(t, c.titles, titles)
			}
			require.Equal(t, c.files, files)
		})
	}
	// A setting that changes an answer is checked with each of its values.
	spec := parsed(t, `
series: [{kind: over, over: q7-window, settings: {q7-window: [1s, 10s]}, queries: 7, protocols: fused, rates: 1000}]
`)
	var checks []string
	for _, s := range NewPlan(spec, false).Steps() {
		checks = append(checks, s.Key())
	}
	require.Equal(t, []string{
		"check q7 fused 100ms r1 final log q7-window=1s #1", "check q7 fused 100ms r1 final log q7-window=10s #1",
		"1 over q7 fused 1000/s 100ms r1 q7-window=1s #1", "1 over q7 fused 1000/s 100ms r1 q7-window=10s #1",
	}, checks)
}
