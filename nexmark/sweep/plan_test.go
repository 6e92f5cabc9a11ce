package sweep

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/nexmark/driver"
)

const planned = `
check: {events: 1000, seed: 3}
defaults: {duration: 2s, warmup: 1s}
series:
  - {kind: commit-interval, queries: 4-5, protocols: [fused, marker], rates: [1000, 2000], commit-intervals: [10ms, 50ms], trials: 2, parallelism: 1}
  - {kind: throughput, queries: 1, protocols: fused, replicas: [1, 3], settings: {key-groups: 8}}
  - {kind: log-latency, rates: [10, 50], replicas: [1, 3]}
  - {kind: recovery, queries: 8, protocols: fused, rates: 1000, recovery: [none, snapshot, standby], fail-at: 1s}
`

// The steps, their order and their commands.
func TestPlan(t *testing.T) {
	env := Env{Nexmark: "nexmark", Tailrace: "tailrace", Redis: true, Shared: func(s string) bool { return s == "key-groups" }}
	var b strings.Builder
	show := func(env Env) {
		p := NewPlan(parsed(t, planned), env.Log != "")
		said := map[string]bool{}
		for _, s := range p.Steps() {
			fmt.Fprintln(&b, s.Key())
			// One command of each kind.
			if sort := fmt.Sprint(s.Case.Kind, s.Case.Check, s.Case.Replicas, s.Case.Recovery); !said[sort] {
				said[sort] = true
				fmt.Fprintf(&b, "    %s\n    on: %s\n", CommandText(env.Command(&s.Case, "ANSWER")), env.Target(&s.Case))
			}
		}
		fmt.Fprintf(&b, "%d steps, at most %v\n\n", len(p.Steps()), p.Takes())
	}
	show(env)
	env.Log, env.Submit, env.Run, env.Link = "10.0.0.1:7000", true, "RUN", []string{"--checkpoints=redis://r", "--cluster=c", "--log-timeout=9s"}
	show(env)
	script.Golden(t, "testdata/plan.txt", b.String())
}

// Next returns each step once, in the order of Steps, until each has a row.
func TestNext(t *testing.T) {
	p := NewPlan(parsed(t, planned), false)
	all := p.Steps()
	rows := map[string]*Row{}
	for i := range all {
		s, most, ok := p.Next(rows)
		require.True(t, ok)
		require.Equal(t, all[i].Key(), s.Key())
		require.Equal(t, len(all)-i, most)
		require.NotContains(t, rows, s.Key())
		rows[s.Key()] = &Row{Key: s.Key()}
	}
	_, most, ok := p.Next(rows)
	require.False(t, ok)
	require.Zero(t, most)
}

// measuredAs makes the row of a step.
func measuredAs(s Step, p99 float64, sustained bool) *Row {
	return &Row{
		Key: s.Key(), Trial: s.Trial, Case: s.Case,
		Bench: &driver.Report{
			Query: s.Case.Query, Protocol: s.Case.Protocol, Offered: float64(s.Case.Rate), Achieved: float64(s.Case.Rate), Sustained: sustained,
			Emit: driver.Quantiles{P50: driver.MS(p99 / 2), P99: driver.MS(p99), Count: 100}, Visible: driver.Quantiles{P50: driver.MS(p99/2 + 1), P99: driver.MS(p99 + 1), Count: 100},
		},
	}
}

// until-p99 raises the rate when most of its trials were sustained and the median of their p99 is
// within the bound, separately for each protocol.
func TestUntil(t *testing.T) {
	spec := parsed(t, `
check: off
series:
  - {kind: latency-over-rate, queries: 1, protocols: [fused, marker], trials: 3, rates: {until-p99: {start: 1000, factor: 1.5, limit: 5000, p99: 100ms}}}
`)
	require.Equal(t, []int64{1000, 1500, 2250, 3375}, spec.Series[0].Until.Steps())
	for _, c := range []struct {
		name  string
		row   func(s Step) *Row
		rates map[string]int64 // the highest rate measured
	}{
		{"within the bound", func(s Step) *Row { return measuredAs(s, 100, true) }, map[string]int64{"fused": 3375, "marker": 3375}},
		{"above it from the start", func(s Step) *Row { return measuredAs(s, 100.1, true) }, map[string]int64{"fused": 1000, "marker": 1000}},
		{"one protocol sooner", func(s Step) *Row {
			return measuredAs(s, map[string]float64{"fused": 0.03, "marker": 0.05}[s.Case.Protocol]*float64(s.Case.Rate), true)
		}, map[string]int64{"fused": 3375, "marker": 2250}},
		{"one trial of three is slow", func(s Step) *Row { return measuredAs(s, map[bool]float64{true: 900, false: 9}[s.Trial == 2], true) }, map[string]int64{"fused": 3375, "marker": 3375}},
		{"two trials are not sustained", func(s Step) *Row { return measuredAs(s, 9, s.Trial == 1 || s.Case.Rate < 1500) }, map[string]int64{"fused": 1500, "marker": 1500}},
		{"a trial fails", func(s Step) *Row {
			r := measuredAs(s, 9, true)
			if s.Case.Protocol == "marker" && s.Trial == 3 {
				r.Bench, r.Failed = nil, "no"
			}
			return r
		}, map[string]int64{"fused": 3375, "marker": 1000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := NewPlan(spec, false)
			rows, highest, trials := map[string]*Row{}, map[string]int64{}, map[string]int{}
			for {
				s, _, ok := p.Next(rows)
				if !ok {
					break
				}
				require.NotContains(t, rows, s.Key())
				rows[s.Key()] = c.row(s)
				highest[s.Case.Protocol] = max(highest[s.Case.Protocol], s.Case.Rate)
				trials[s.Case.Key()]++
			}
			require.Equal(t, c.rates, highest)
			for k, n := range trials {
				require.Equal(t, 3, n, k)
			}
		})
	}
}
