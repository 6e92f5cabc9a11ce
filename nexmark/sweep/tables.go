package sweep

import (
	"fmt"
	"math"
	"slices"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/overlay"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// Table is rows of text under a heading.
type Table struct {
	Title, Note string
	Head        []string
	Rows        [][]string
	// Void marks rows that do not count.
	Void []bool
}

// published2 is Impeller's Table 2: µs from append to delivery of 16 KiB.
var published2 = map[int64][4]string{ // appends/s → its log's p50, p99; Kafka's p50, p99
	10:  {"2714", "3711", "2074", "4448"},
	50:  {"2604", "3832", "1596", "3463"},
	100: {"2546", "3596", "1449", "2942"},
}

// published4 is Impeller's Table 4: seconds of recovery of query 8.
var published4 = map[string]map[int64]float64{ // how → events/s →
	"none":     {80_000: 3.858, 96_000: 3.920, 112_000: 4.758},
	"snapshot": {80_000: 0.273, 96_000: 0.270, 112_000: 0.297},
}

// logTable has the shape of Impeller's Table 2, beside its numbers.
func logTable(all []*cell, peer overlay.Results) *Table {
	if len(all) == 0 {
		return nil
	}
	t := &Table{
		Title: "Latency of the log: append until delivered to a reader, µs (Impeller Table 2)",
		Note:  "Median of trials. The paper's are of 13 machines with three replicas (Boki's log, Kafka); on one machine there is no network between the nodes.",
		Head:  []string{"appends/s", "record", "replicas", "samples", "p50", "p99", "(p50 least–greatest)", "paper: Impeller's log p50", "p99", "paper: Kafka p50", "p99"},
	}
	if len(peer.Logs) > 0 {
		t.Head = append(t.Head, peer.Name+" here p50", "p99")
	}
	pick := func(f func(l *LogReport) int64) measure {
		return measure{of: func(r *Row) (float64, int64) {
			if r.Log == nil {
				return 0, 0
			}
			return float64(f(r.Log)), r.Log.Count
		}}
	}
	for _, c := range all {
		replicas := countText(c.Replicas)
		if replicas == "" {
			replicas = "as the cluster"
		}
		row := []string{fmt.Sprint(c.Rate), fmt.Sprintf("%d B", c.Bytes), replicas}
		p50, ok := c.value(pick(func(l *LogReport) int64 { return l.DeliverP50 }))
		p99, _ := c.value(pick(func(l *LogReport) int64 { return l.DeliverP99 }))
		if !ok {
			row = append(row, "failed", "–", "–", "–")
		} else {
			samples := int64(0)
			for _, r := range c.rows {
				samples += r.Log.Count
			}
			row = append(row, fmt.Sprint(samples), fmt.Sprintf("%.0f", p50.Y), fmt.Sprintf("%.0f", p99.Y), fmt.Sprintf("%.0f–%.0f", p50.Lo, p50.Hi))
		}
		paper, ok := published2[c.Rate]
		if !ok || c.Bytes != 16<<10 {
			paper = [4]string{"–", "–", "–", "–"}
		}
		row = append(row, paper[:]...)
		if len(peer.Logs) > 0 {
			i := slices.IndexFunc(peer.Logs, func(l overlay.Log) bool { return int64(l.Rate) == c.Rate && l.Replicas == max(1, c.Replicas) })
			if i < 0 {
				row = append(row, "–", "–")
			} else {
				row = append(row, fmt.Sprintf("%.0f", peer.Logs[i].P50), fmt.Sprintf("%.0f", peer.Logs[i].P99))
			}
		}
		t.Rows, t.Void = append(t.Rows, row), append(t.Void, false)
	}
	return t
}

// recoveryTable has the shape of Impeller's Table 4, beside its numbers.
func recoveryTable(all []*cell) *Table {
	if len(all) == 0 {
		return nil
	}
	t := &Table{
		Title: "Recovery of a task, s from the failure (Impeller Table 4: recovery time of query 8)",
		Note: "Median of trials. State back: snapshot and change log are read. The paper's baseline has no checkpoints (none); with them it is 14–16 times faster, with 27–30 times fewer entries to read. " +
			"Ratio: how many times longer without snapshots.",
		Head: []string{"query", "protocol", "events/s", "how", "state back", "(least–greatest)", "ratio", "first result", "caught up", "entries of snapshots", "of the change log", "paper"},
	}
	pick := func(f func(c *driver.Recovery) driver.MS) measure { // of the trials that have measured it
		return measure{of: func(r *Row) (float64, int64) {
			if r.Bench == nil || r.Bench.Recovery == nil || !f(r.Bench.Recovery).Seen() {
				return 0, 0
			}
			return float64(f(r.Bench.Recovery)), 1
		}}
	}
	back := pick(func(c *driver.Recovery) driver.MS { return c.Replay / 1000 })
	for _, c := range all {
		row := []string{c.label(), c.Protocol, fmt.Sprint(c.Rate), c.Recovery}
		took, ok := c.value(back)
		if !ok {
			row = append(row, "failed", "–", "–", "–", "–", "–", "–")
		} else {
			seconds := func(f func(c *driver.Recovery) driver.MS) string {
				p, ok := c.value(pick(f))
				if !ok {
					return "not within the run"
				}
				return fmt.Sprintf("%.3f", p.Y/1000)
			}
			entries := func(f func(c *driver.Recovery) uint64) string {
				p, _ := c.value(pick(func(c *driver.Recovery) driver.MS { return driver.MS(f(c)) }))
				return fmt.Sprintf("%.0f", p.Y)
			}
			ratio := "–"
			for _, o := range all {
				twin := o.Case
				twin.Recovery = c.Recovery
				if o.Recovery != "none" || twin.Key() != c.Key() || o == c {
					continue
				}
				if base, ok := o.value(back); ok && took.Y > 0 {
					ratio = fmt.Sprintf("%.1f×", base.Y/took.Y)
				}
			}
			row = append(row, fmt.Sprintf("%.3f", took.Y), fmt.Sprintf("%.3f–%.3f", took.Lo, took.Hi), ratio,
				seconds(func(c *driver.Recovery) driver.MS { return c.FirstResult }), seconds(func(c *driver.Recovery) driver.MS { return c.CaughtUp }),
				entries(func(c *driver.Recovery) uint64 { return c.SnapshotEntries }), entries(func(c *driver.Recovery) uint64 { return c.Entries }))
		}
		paper := "–"
		if v := published4[c.Recovery][c.Rate]; v > 0 && c.Query == 8 {
			paper = fmt.Sprintf("%.3f", v)
		}
		t.Rows, t.Void = append(t.Rows, append(row, paper)), append(t.Void, c.void)
	}
	return t
}

// publishedTable4 is the paper's table, for rates that were not measured.
func publishedTable4() *Table {
	t := &Table{Title: "As published: Impeller Table 4, recovery time of query 8, s", Head: []string{"events/s", "80,000", "96,000", "112,000"}}
	for _, how := range []string{"none", "snapshot"} {
		row := []string{map[string]string{"none": "baseline", "snapshot": "+checkpoint"}[how]}
		for _, rate := range []int64{80_000, 96_000, 112_000} {
			row = append(row, fmt.Sprintf("%.3f", published4[how][rate]))
		}
		t.Rows, t.Void = append(t.Rows, row), append(t.Void, false)
	}
	return t
}

// caseTable lists every case with its figures.
func caseTable(all []*cell) *Table {
	t := &Table{
		Title: "All cases",
		Note:  "Medians of the trials that kept up (of all, where none did). Latencies in ms.",
		Head: []string{
			"case", "trials", "kept up", "achieved/s", "visible p50", "p90", "p99", "p99.9", "max", "samples", "emit p50", "p90", "p99", "p99.9", "max", "samples",
			"CPU ns/event", "log B/event", "appends/1000", "MiB",
		},
	}
	for _, c := range all {
		if c.Kind == LogLatency {
			continue
		}
		name := c.Key()
		if c.void {
			name += " VOID"
		}
		row := []string{name, fmt.Sprintf("%d", len(c.rows)), fmt.Sprintf("%d", c.sustained())}
		if c.failed > 0 {
			row[1] += fmt.Sprintf(" (%d failed)", c.failed)
		}
		number := func(f func(r *Row) float64) {
			p, ok := c.value(measure{of: func(r *Row) (float64, int64) {
				if r.Bench == nil || math.IsNaN(f(r)) {
					return 0, 0
				}
				return f(r), 1
			}})
			if !ok {
				row = append(row, "–")
				return
			}
			row = append(row, plot.Number(p.Y))
		}
		number(func(r *Row) float64 { return r.Bench.Achieved })
		for _, which := range []string{"visible", "emit"} {
			for _, f := range []func(r *Row) float64{
				func(r *Row) float64 { return float64(r.quantiles(which).P50) }, func(r *Row) float64 { return float64(r.quantiles(which).P90) },
				func(r *Row) float64 { return float64(r.quantiles(which).P99) }, func(r *Row) float64 { return float64(r.quantiles(which).P999) },
				func(r *Row) float64 { return float64(r.quantiles(which).Max) }, func(r *Row) float64 { return float64(r.quantiles(which).Count) },
			} {
				if c.Rate == 0 {
					row = append(row, "–") // as fast as possible: event time is unrelated to the clock
				} else {
					number(f)
				}
			}
		}
		number(func(r *Row) float64 { return r.Bench.CPUPerEvent })
		number(func(r *Row) float64 { return r.Bench.BytesPerEvent })
		number(func(r *Row) float64 { return r.Bench.AppendsPer1k })
		number(func(r *Row) float64 { return float64(r.Bench.RSS) / (1 << 20) })
		t.Rows, t.Void = append(t.Rows, row), append(t.Void, c.void)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// checkTable lists the results of the checks.
func checkTable(rows []*Row) *Table {
	t := &Table{
		Title: "Answers",
		Note:  "A run over the same events under each protocol, compared with a brute-force evaluation as a multiset of rows (queries 4 and 6: the last row of each key). Queries 5, 7 and 8 emit final rows here: how often a window's rows change before it closes is no answer. A protocol that gives another answer is void.",
		Head:  []string{"check", "rows", "answer (sha256)", "right"},
	}
	newest := byKey(rows)
	for _, r := range rows {
		if r.Case.Check == 0 || newest[r.Key] != r {
			continue
		}
		row := []string{r.Case.Key(), "–", "–", "failed: " + r.Failed}
		if a := r.Check; a != nil {
			right := "yes"
			if !a.Right {
				right = "NO: " + a.Difference
			}
			row = []string{r.Case.Key(), fmt.Sprint(a.Rows), a.Digest[:16], right}
		}
		t.Rows, t.Void = append(t.Rows, row), append(t.Void, r.Check == nil || !r.Check.Right)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}
