package sweep

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/overlay"
	"tailrace.dev/tailrace/nexmark/sweep/sysinfo"
)

const drawn = `
name: drawn
title: What a report can hold
check: {events: 200}
defaults: {protocols: [fused, marker, txn, unsafe], trials: 3, duration: 2s, warmup: 1s}
series:
  - {kind: latency-over-rate, queries: [1, 5], rates: [1000, 2000, 4000]}
  - {kind: commit-interval, queries: 4, rates: 1000, commit-intervals: [10ms, 100ms]}
  - {kind: against-unsafe, queries: 5, rates: [1000, 2000], trials: 1}
  - {kind: throughput, queries: [1, 2], protocols: [fused, marker]}
  - {kind: log-latency, rates: [10, 50], replicas: 3, trials: 1}
  - {kind: recovery, queries: 8, protocols: fused, rates: 80_000, fail-at: 1s, trials: 1}
  - {kind: over, queries: 5, protocols: [fused, marker], rates: 1000, over: key-groups, settings: {key-groups: [64, 8]}, values: [log-bytes, emit-p99]}
  - {kind: timeline, queries: 8, protocols: [fused, marker], rates: 2000, fail-at: 1s, recovery: [none, snapshot], values: [throughput, visible-max]}
`

// fixedRows returns the rows of drawn, computed by a formula: marker takes four times as long as
// fused and does not keep up at the highest rate in one trial; txn gives a wrong answer to query 1,
// and one of its runs failed.
func fixedRows(t *testing.T) (*Spec, []*Row) {
	spec := parsed(t, drawn)
	var rows []*Row
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, s := range NewPlan(spec, false).Steps() {
		c := s.Case
		at = at.Add(3 * time.Second)
		r := &Row{
			Key: s.Key(), Trial: s.Trial, Case: c, At: at, Seconds: 3.2, Target: "embedded", Command: []string{"nexmark", "bench"},
			Program: sysinfo.Program{Commit: "0123abc", Go: "go1.26"},
			Host:    sysinfo.Host{Name: "host", Cores: 2, CPU: "a <processor>", Kernel: "linux 6", Memory: 24 << 30, Load: 0.25 * float64(s.Trial)},
		}
		rows = append(rows, r)
		p50 := map[string]float64{"fused": 1, "marker": 4, "txn": 6, "unsafe": 0.98}[c.Protocol] * (5 + c.CommitInterval.MS()/10) * (1 + float64(s.Trial)/20) * math.Sqrt(float64(c.Rate)/1000)
		switch {
		case c.Check > 0:
			r.Check = &Answer{Rows: 7, Digest: strings.Repeat("0123456789abcdef", 4), Right: true}
			if c.Query == 1 && c.Protocol == "txn" {
				r.Check.Right, r.Check.Difference = false, "6 rows, 7 expected"
			}
		case c.Kind == LogLatency:
			r.Log = &LogReport{Size: c.Bytes, Rate: float64(c.Rate), Count: 10 * c.Rate, DeliverP50: 350, DeliverP99: 1200}
		case c.Protocol == "txn" && c.Query == 5 && c.Rate == 2000 && s.Trial == 2:
			r.Failed = "exit status 1: no <space> left"
		default:
			ms := driver.MS(p50)
			q := driver.Quantiles{P50: ms, P90: 1.5 * ms, P99: 2 * ms, P999: 3 * ms, Max: 4 * ms, Count: 100}
			emit := q
			emit.P50, emit.P99 = q.P50*0.9, q.P99*0.8
			r.Bench = &driver.Report{
				Query: c.Query, Protocol: c.Protocol, Offered: float64(c.Rate), Achieved: max(float64(c.Rate), 3e6/(p50+1)), Visible: q, Emit: emit,
				Sustained: c.Protocol != "marker" || c.Rate != 4000 || s.Trial != 3, CPUPerEvent: 800, BytesPerEvent: 150, AppendsPer1k: 2, RSS: 100 << 20,
				Measured: "eager: newest event of the row", Fsync: "interval",
			}
			if c.Kind == Timeline {
				r.Timeline = fixedTimeline(&c, s.Trial, p50)
			}
			if c.Kind == Recovery {
				back := map[string]driver.MS{"none": 3000, "snapshot": 200, "standby": 4}[c.Recovery]
				r.Bench.Recovery = &driver.Recovery{Stage: "join", Replay: back, FirstResult: back + 20, CaughtUp: back + 100, SnapshotEntries: 500, Entries: uint64(back) * 10}
			}
		}
	}
	return spec, rows
}

// fixedTimeline is two seconds at a rate, in which the latency is p50; from the failure at one second
// on, nothing comes out for a while, and then all that is behind.
func fixedTimeline(c *Case, trial int, p50 float64) (all []driver.Moment) {
	down := map[string]int{"none": 5, "snapshot": 2}[c.Recovery]
	none := driver.Short{P50: driver.Unseen(), P99: driver.Unseen(), Max: driver.Unseen()}
	for i := 1; i <= 20; i++ {
		m := driver.Moment{
			At: driver.MS(100*i + trial), Events: c.Rate / 10, Rows: c.Rate / 20, Emit: none, RSS: 100 << 20,
			Visible: driver.Short{P50: driver.MS(p50), P99: driver.MS(2 * p50), Max: driver.MS(p50 * (2 + float64(i%3)/2))},
		}
		switch n := i - 11; {
		case n >= 0 && n < down:
			m.Events, m.Rows, m.Visible, m.Backlog = 0, 0, none, int64(n)*c.Rate*10
		case n == down:
			m.Events, m.Visible.Max = m.Events*int64(down+1), driver.MS(100*down)
		}
		all = append(all, m)
	}
	return all
}

const peerLines = `{"q":5,"step":"low","rate":1000,"ok":true,"latency_ms":{"p50":120,"p99":300,"n":10},"visible_ms":{"p50":180,"p99":400,"n":10}}
{"q":5,"step":"ladder","rate":3000,"ok":false,"latency_ms":{"p50":900,"p99":3000,"n":10}}
{"summary":true,"q":5,"commit_ms":100,"rf":1}
`

// The same rows give the same report, byte for byte.
func TestReport(t *testing.T) {
	spec, rows := fixedRows(t)
	var peer overlay.Results
	require.NoError(t, peer.Add("sweep-q5.json", []byte(peerLines)))
	require.NoError(t, peer.Add("loglat-rf3.json", []byte(`{"bench":"loglat","rf":3,"aps":10,"append_to_consume_us":{"p50":700,"p99":2100,"n":300}}`)))
	r := Report{Spec: spec, Text: []byte(drawn), Rows: rows, Overlay: peer}
	require.Equal(t, Summary{
		Rows: len(rows), Failed: 1, Void: 10, Unsustained: 2, First: "check q1 txn 100ms r1 eager log #1: void: 6 rows, 7 expected",
	}, r.Summary())
	var page bytes.Buffer
	require.NoError(t, r.HTML(&page))
	script.Golden(t, "testdata/report.html", page.String())
	// The report loads nothing from elsewhere.
	for _, outside := range []string{"src=", "href=", "url(", "@import", "<script"} {
		require.NotContains(t, page.String(), outside)
	}
	require.Equal(t, strings.Count(page.String(), "http"), strings.Count(page.String(), `xmlns="http://www.w3.org/2000/svg"`))

	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "plots"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plots/old.svg"), nil, 0o644))
	require.NoError(t, r.Write(dir))
	plots, err := os.ReadDir(filepath.Join(dir, "plots"))
	require.NoError(t, err)
	require.Len(t, plots, 21) // four measures of four figures, throughput, two over a setting, two over time
	require.NoFileExists(t, filepath.Join(dir, "plots/old.svg"))
}

// A figure is the median of the trials that kept up; a trial that did not makes it hollow.
func TestNotSustained(t *testing.T) {
	c := &cell{Case: Case{Rate: 1000}}
	for i, p50 := range []float64{10, 500, 30} {
		r := measuredAs(Step{Trial: i + 1}, 2*p50, p50 != 500)
		c.rows = append(c.rows, r)
	}
	p, ok := c.value(latencyOf("emit", false))
	require.True(t, ok)
	require.Equal(t, []float64{20, 10, 30}, []float64{p.Y, p.Lo, p.Hi}, "the middle of two lies between them")
	require.True(t, p.Hollow)
	require.False(t, c.sound())
	c.rows = c.rows[1:2]
	p, ok = c.value(latencyOf("emit", false))
	require.True(t, ok)
	require.Equal(t, 500.0, p.Y)
	c.rows[0].Bench.Emit.Count = 0
	_, ok = c.value(latencyOf("emit", false))
	require.False(t, ok, "no sample is no latency")
}

// What no trial measured is not shown as 0, neither in a line of progress nor in a table.
func TestUnseen(t *testing.T) {
	r := measuredAs(Step{Case: Case{Query: 5, Rate: 1000}}, 10, true)
	r.Bench.Visible = driver.Quantiles{P50: driver.Unseen(), P90: driver.Unseen(), P99: driver.Unseen(), P999: driver.Unseen(), Max: driver.Unseen()}
	require.Equal(t, "no row was seen", r.Outcome())
	require.Equal(t, []string{"–", "–", "–", "–", "–", "0"}, caseTable([]*cell{{Case: r.Case, rows: []*Row{r}}}).Rows[0][4:10])
	r.Bench.Recovery = &driver.Recovery{Stage: "join", Replay: 50, FirstResult: driver.Unseen(), CaughtUp: driver.Unseen()}
	require.Equal(t, "state back after 50.0 ms, caught up after - ms", r.Outcome())
	row := recoveryTable([]*cell{{Case: r.Case, rows: []*Row{r}}}).Rows[0]
	require.Equal(t, []string{"0.050", "not within the run", "not within the run"}, []string{row[4], row[7], row[8]})
}

// Claims are judged from sound pairs that differ only in the protocol.
func TestClaims(t *testing.T) {
	_, rows := fixedRows(t)
	verdicts := func(rows []*Row) map[string]string {
		v := map[string]string{}
		for _, c := range Claims(rows) {
			v[c.ID] += c.Verdict + ": " + strings.Join(c.Numbers, "; ") + "\n"
		}
		return v
	}
	v := verdicts(rows)
	require.Contains(t, v["C1"], "✓ Q4 100ms: p50 1.50×, p99 1.50×; 10ms: p50 1.50×, p99 1.50×")
	require.Contains(t, v["C2"], "not measured: no two sound cases of aligned and marker")
	require.Contains(t, v["F1"], "holds: ✓ Q1 mean 1.02×, p50 1.02×; ✓ Q4 mean 1.02×, p50 1.02×; ✓ Q5 mean 1.02×, p50 1.02×")
	require.Contains(t, v["F2"], "holds: ✓ Q4 mean 0.25×, p50 0.25×; ✓ Q5 mean 0.25×, p50 0.25×")
	for _, r := range rows {
		switch {
		case r.Bench == nil || r.Case.Kind != CommitInterval:
		case r.Case.Protocol == "txn" && r.Case.CommitInterval == Duration(10*time.Millisecond):
			r.Bench.Visible.P50 /= 2 // short intervals suit txn
		case r.Case.Protocol == "fused":
			r.Bench.Sustained = false // no longer a fair pair
		}
	}
	v = verdicts(rows)
	require.Contains(t, v["C1"], "does not hold: ✗ Q4 100ms: p50 1.50×, p99 1.50×; 10ms: p50 0.75×, p99 1.50×")
	require.Contains(t, v["F2"], "holds: ✓ Q5 mean 0.25×, p50 0.25×\n")
	for _, r := range rows {
		if r.Case.Check > 0 && r.Case.Protocol == "marker" {
			r.Check.Right = false
		}
	}
	require.Contains(t, verdicts(rows)["F2"], "not measured")
}

func TestOverlay(t *testing.T) {
	var o overlay.Results
	require.ErrorContains(t, o.Add("x.json", []byte("hello\n")), "x.json: no steps of a sweep")
	require.ErrorContains(t, o.Add("x.json", []byte("\n{\"q\":\"five\"}\n")), "x.json:2: ")
	require.NoError(t, o.Add("x.json", []byte(peerLines)))
	require.Len(t, o.Steps, 2)
	cs := []*cell{{Case: Case{Query: 5, CommitInterval: Duration(100 * time.Millisecond), Replicas: 1}}}
	require.Len(t, peerLine(cs, latencyOf("emit", true), o), 2)
	require.Len(t, peerLine(cs, latencyOf("visible", true), o), 1)
	require.Equal(t, 400.0, peerLine(cs, latencyOf("visible", true), o)[0].Y)
	require.True(t, peerLine(cs, latencyOf("emit", true), o)[1].Hollow)
	cs[0].CommitInterval /= 10
	require.Empty(t, peerLine(cs, latencyOf("emit", true), o))
}
