package sweep

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// cell is a case with those of its trials that have a result.
type cell struct {
	Case
	rows   []*Row
	failed int
	void   bool
}

// cells groups rows by case, in the order of the rows, without checks.
func cells(rows []*Row) (all []*cell) {
	newest, wrong, index := byKey(rows), Wrong(rows), map[string]*cell{}
	for _, r := range rows {
		if r.Case.Check > 0 || newest[r.Key] != r {
			continue
		}
		c := index[r.Case.Key()]
		if c == nil {
			_, void := wrong[r.Case.answer()]
			c = &cell{Case: r.Case, void: void}
			index[r.Case.Key()] = c
			all = append(all, c)
		}
		if r.Failed != "" {
			c.failed++
		} else {
			c.rows = append(c.rows, r)
		}
	}
	return all
}

func of(all []*cell, kinds ...Kind) (some []*cell) {
	for _, c := range all {
		if contains(kinds, c.Kind) {
			some = append(some, c)
		}
	}
	return some
}

// sustained counts the trials that kept up.
func (c *cell) sustained() (n int) {
	for _, r := range c.rows {
		if r.Bench == nil || r.Bench.Sustained {
			n++
		}
	}
	return n
}

// sound reports whether the cell may be compared: every trial has a result and kept
// up, and the answers are right.
func (c *cell) sound() bool {
	return len(c.rows) > 0 && c.failed == 0 && c.sustained() == len(c.rows) && !c.void
}

// measure is a figure of a row.
type measure struct {
	name string // p50 of visible latency
	of   func(r *Row) (v float64, samples int64)
}

func latencyOf(which string, p99 bool) measure {
	m := measure{name: "p50 of " + which + " latency"}
	if p99 {
		m.name = "p99 of " + which + " latency"
	}
	m.of = func(r *Row) (float64, int64) {
		q := driver.Quantiles{}
		if r.Bench != nil {
			if q = r.Bench.Visible; which == "emit" {
				q = r.Bench.Emit
			}
		}
		if p99 {
			return float64(q.P99), q.Count
		}
		return float64(q.P50), q.Count
	}
	return m
}

// value is the median of the trials that kept up, or of all if none did, with the least and the
// greatest; ok is false if no trial has a sample.
func (c *cell) value(m measure) (p plot.Point, ok bool) {
	var v []float64
	samples := int64(0)
	kept := c.sustained()
	for _, r := range c.rows {
		if kept > 0 && r.Bench != nil && !r.Bench.Sustained {
			continue
		}
		if x, n := m.of(r); n > 0 {
			v = append(v, x)
			samples += n
		}
	}
	if len(v) == 0 {
		return p, false
	}
	p = plot.Point{X: float64(c.Rate), Y: median(v), Lo: slices.Min(v), Hi: slices.Max(v), Hollow: kept < len(c.rows), Void: c.void}
	p.Tip = fmt.Sprintf("%s at %s/s, %d trials, %d samples", plot.Number(p.Y), rateText(c.Rate), len(v), samples)
	if p.Hollow {
		p.Tip += fmt.Sprintf(", %d of %d kept up", kept, len(c.rows))
	}
	return p, true
}

// dimension is something in which cases of one kind may differ.
type dimension struct {
	name string
	of   func(c *Case) string
}

var dimensions = []dimension{
	{"", func(c *Case) string { return rateName(c) }},
	{"commit interval", func(c *Case) string { return durationText(c.CommitInterval) }},
	{"parallelism", func(c *Case) string { return countText(c.Parallelism) }},
	{"replicas", func(c *Case) string { return countText(c.Replicas) }},
	{"workers", func(c *Case) string { return countText(c.Workers) }},
	{"emit", func(c *Case) string { return c.Emit }},
	{"source", func(c *Case) string { return c.Source }},
	{"", func(c *Case) string { return settingsText(c.Settings) }},
	{"measured", func(c *Case) string { return durationText(c.Duration) }},
	{"warm-up", func(c *Case) string { return durationText(c.Warmup) }},
	{"recovery", func(c *Case) string { return c.Recovery }},
}

const noAxis, byRate, byCommit = -1, 0, 1 // indices into dimensions

func rateName(c *Case) string {
	if c.Rate == 0 {
		return ""
	}
	return plot.Number(float64(c.Rate)) + "/s"
}

func durationText(d Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func countText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// split divides cells into panels: by query, and by every dimension but the axis in which they
// differ. common is a sentence about the values they share.
func split(all []*cell, axis int) (panels [][]*cell, titles []string, common string) {
	var differ []int
	var same []string
	for d, dim := range dimensions {
		if d == axis {
			continue
		}
		values := map[string]bool{}
		for _, c := range all {
			values[dim.of(&c.Case)] = true
		}
		for v := range values {
			if len(values) == 1 && v != "" {
				same = append(same, strings.TrimSpace(dim.name+" "+v))
			}
		}
		// The duration of a measurement does not make a panel of its own.
		if len(values) > 1 && dim.name != "measured" && dim.name != "warm-up" {
			differ = append(differ, d)
		}
	}
	index := map[string]int{}
	for _, c := range all {
		title := c.label()
		for _, d := range differ {
			if v := dimensions[d].of(&c.Case); v != "" {
				title += ", " + strings.TrimSpace(dimensions[d].name+" "+v)
			}
		}
		i, ok := index[title]
		if !ok {
			i = len(panels)
			index[title] = i
			panels, titles = append(panels, nil), append(titles, title)
		}
		panels[i] = append(panels[i], c)
	}
	order := make([]int, len(panels))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return panels[a][0].before(&panels[b][0].Case) })
	sortedPanels, sortedTitles := make([][]*cell, len(panels)), make([]string, len(panels))
	for to, from := range order {
		sortedPanels[to], sortedTitles[to] = panels[from], titles[from]
	}
	return sortedPanels, sortedTitles, strings.Join(same, ", ")
}

// protocols lists the protocols of cells, in the order in which they are drawn.
func protocols(all []*cell) (names []string) {
	for _, c := range all {
		if !contains(names, c.Protocol) {
			names = append(names, c.Protocol)
		}
	}
	order := []string{"fused", "marker", "txn", "aligned", "unsafe"}
	rank := func(n string) int {
		if i := slices.Index(order, n); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names
}

// styleOf gives a protocol the same colour in all figures.
func styleOf(name string, others int) int {
	if i := slices.Index([]string{"fused", "marker", "txn", "aligned", "unsafe"}, name); i >= 0 {
		return i
	}
	return 5 + others%2
}

func legend(names []string) (l []plot.Series) {
	others := 0
	for _, n := range names {
		style := styleOf(n, others)
		if style >= 5 {
			others++
		}
		l = append(l, plot.Series{Name: n, Style: style})
	}
	return l
}
