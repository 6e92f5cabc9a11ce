package sweep

import (
	"fmt"
	"math"
	"slices"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// course is something that a series of kind timeline draws.
type course struct {
	name, unit string
	latency    bool // of rows, which there is only at a rate
	of         func(m *driver.Moment, seconds float64) float64
}

// timelineValues are the courses by their names in specs.
var timelineValues = map[string]course{
	"throughput":  {"events that are consumed", "events/s", false, func(m *driver.Moment, s float64) float64 { return float64(m.Events) / s }},
	"rows":        {"rows that come out", "rows/s", false, func(m *driver.Moment, s float64) float64 { return float64(m.Rows) / s }},
	"visible-p50": {"p50 of visible latency", "ms", true, func(m *driver.Moment, _ float64) float64 { return float64(m.Visible.P50) }},
	"visible-p99": {"p99 of visible latency", "ms", true, func(m *driver.Moment, _ float64) float64 { return float64(m.Visible.P99) }},
	"visible-max": {"greatest visible latency", "ms", true, func(m *driver.Moment, _ float64) float64 { return float64(m.Visible.Max) }},
	"emit-p50":    {"p50 of emit latency", "ms", true, func(m *driver.Moment, _ float64) float64 { return float64(m.Emit.P50) }},
	"emit-p99":    {"p99 of emit latency", "ms", true, func(m *driver.Moment, _ float64) float64 { return float64(m.Emit.P99) }},
	"emit-max":    {"greatest emit latency", "ms", true, func(m *driver.Moment, _ float64) float64 { return float64(m.Emit.Max) }},
	"backlog":     {"written to streams and not read yet", "MB", false, func(m *driver.Moment, _ float64) float64 { return float64(m.Backlog) / 1e6 }},
	"job":         {"time that tasks processed", "ms a second", false, func(m *driver.Moment, s float64) float64 { return float64(m.Job) / s }},
	"moving":      {"time that tasks were getting the state of key groups", "ms a second", false, func(m *driver.Moment, s float64) float64 { return float64(m.Moving) / s }},
	"waiting":     {"time that tasks waited for key groups", "ms a second", false, func(m *driver.Moment, s float64) float64 { return float64(m.Waiting) / s }},
	"memory":      {"memory", "MiB", false, func(m *driver.Moment, _ float64) float64 { return float64(m.RSS) / (1 << 20) }},
}

// isLatency reports whether a quantity is a latency.
func isLatency(name string) bool { return overValues[name].latency || timelineValues[name].latency }

// timelines draws the series of kind timeline: a figure for each value of each series.
func timelines(all []*cell) (drawn []Drawn) {
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(c *cell) bool { return c.Series != all[0].Series })
		if n < 0 {
			n = len(all)
		}
		for _, name := range all[0].Values {
			if f := timeline(all[:n], timelineValues[name]); f.Holds() {
				drawn = append(drawn, Drawn{File: fmt.Sprintf("%s-%d-%s.svg", Timeline, all[0].Series, name), Figure: f, Visible: true})
			}
		}
		all = all[n:]
	}
	return drawn
}

func timeline(all []*cell, v course) plot.Figure {
	names, key := protocols(all), func(c *cell) string { return c.Protocol }
	series := legend(names)
	alike, original := all, map[*cell]*cell{}
	if all[0].Over != "" { // a line for each value of the setting
		names, series, alike, key = nil, nil, nil, func(c *cell) string { return original[c].at() }
		for _, c := range all {
			one := *c
			one.Case = c.alike()
			alike, original[&one] = append(alike, &one), c
			if at := c.at(); !contains(names, at) {
				names, series = append(names, at), append(series, plot.Series{Name: at, Style: len(series) % 8})
			}
		}
	}
	panels, titles, common := split(alike, noAxis)
	f := plot.Figure{
		Title: v.name + " over time, " + v.unit, Sub: common + "; median of trials; each panel has its own axis",
		X: "s", Y: v.unit, Legend: series,
	}
	mark := all[0].FailAt.MS() / 1000
	switch at := all[0].rescaledAt(); {
	case mark > 0:
		f.Sub += fmt.Sprintf("; a task loses its memory after %v", all[0].FailAt)
	case at > 0:
		mark = at.Seconds()
		f.Sub += fmt.Sprintf("; a stage is rescaled after %v", at)
	}
	for i, cs := range panels {
		p := plot.Panel{Title: titles[i], Time: true, Mark: mark}
		for n, name := range names {
			for _, c := range cs {
				if key(c) != name {
					continue
				}
				of := c
				if o := original[c]; o != nil {
					of = o
				}
				p.Lines = append(p.Lines, plot.Line{Series: n, Points: of.course(v)})
			}
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}

// course returns the median of the trials in each step of the timeline; NaN where none has measured
// anything.
func (c *cell) course(v course) (pts []plot.Point) {
	step := driver.TimelineStep.Seconds()
	var values [][]float64
	for _, r := range c.rows {
		before, last := 0.0, -1
		for i := range r.Timeline {
			m := &r.Timeline[i]
			at := float64(m.At) / 1000
			n := max(0, int(math.Round(at/step))-1)
			for len(values) <= n {
				values = append(values, nil)
			}
			// On a busy machine a moment comes late: it then covers the steps since the one before.
			x := v.of(m, max(at-before, step/10))
			for k := min(last+1, n); k <= n && !math.IsNaN(x); k++ {
				values[k] = append(values[k], x)
			}
			before, last = at, n
		}
	}
	for n, all := range values {
		p := plot.Point{X: float64(n+1) * step, Y: math.NaN(), Hollow: c.sustained() < len(c.rows), Void: c.void}
		if len(all) > 0 {
			p.Y = median(all)
		}
		pts = append(pts, p)
	}
	return pts
}
