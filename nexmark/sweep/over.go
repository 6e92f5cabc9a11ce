package sweep

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// quantity is something that a series of kind over draws.
type quantity struct {
	measure
	unit    string
	latency bool // of rows, which there is only at a rate
}

// overValues are the quantities by their names in specs.
var overValues = map[string]quantity{
	"throughput":  {measure{"events that are consumed", ofBench(func(b *driver.Report) float64 { return b.Achieved })}, "events/s", false},
	"log-bytes":   {measure{"log written", ofBench(func(b *driver.Report) float64 { return b.BytesPerEvent })}, "bytes an event", false},
	"cpu":         {measure{"processor time", ofBench(func(b *driver.Report) float64 { return b.CPUPerEvent })}, "ns an event", false},
	"memory":      {measure{"peak of memory", ofBench(func(b *driver.Report) float64 { return float64(b.RSS) / (1 << 20) })}, "MiB", false},
	"visible-p50": {latencyOf("visible", false), "ms", true},
	"visible-p99": {latencyOf("visible", true), "ms", true},
	"peak":        {ofRescale("greatest visible latency in a rescale", func(r *driver.Rescaled) driver.MS { return effect(r).Peak }), "ms", true},
	"peak-over-p99": {ofRescale("greatest visible latency in a rescale, as a multiple of the p99 before", func(r *driver.Rescaled) driver.MS {
		return effect(r).Peak / effect(r).P99Before
	}), "× p99", true},
	"back":            {ofRescale("time until the latency is as before a rescale", func(r *driver.Rescaled) driver.MS { return effect(r).Back }), "ms", true},
	"settled":         {ofRescale("time until a rescale is complete", func(r *driver.Rescaled) driver.MS { return driver.MS(r.SettledMS) }), "ms", false},
	"groups-moved":    {ofRescale("key groups that a rescale moves", func(r *driver.Rescaled) driver.MS { return driver.MS(r.GroupsMoved) }), "key groups", false},
	"exchange-bytes":  {exchangedBytes, "bytes an event", false},
	"exchange-remote": {exchangedRemotely, "% of the items", false},
	"exchange-items":  {exchangedItems, "items an event", false},
	"degree":          {balanceColumns[0], "least ÷ greatest", false},
	"switches":        {balanceColumns[2], "steps", false},
	"emit-p50":        {latencyOf("emit", false), "ms", true},
	"emit-p99":        {latencyOf("emit", true), "ms", true},
}

// ofRescale returns a figure of the last rescale of a report that was done.
func ofRescale(name string, f func(r *driver.Rescaled) driver.MS) measure {
	return measure{name, func(r *Row) (float64, int64) {
		d := r.rescaled()
		if d == nil || !f(d).Seen() {
			return 0, 0
		}
		return float64(f(d)), 1
	}}
}

// ofBench returns a figure of a report; 0 was not measured.
func ofBench(f func(b *driver.Report) float64) func(r *Row) (float64, int64) {
	return func(r *Row) (float64, int64) {
		if r.Bench == nil || f(r.Bench) == 0 {
			return 0, 0
		}
		return f(r.Bench), 1
	}
}

// overs draws the series of kind over: a figure for each value of each series.
func overs(all []*cell) (drawn []Drawn) {
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(c *cell) bool { return c.Series != all[0].Series })
		if n < 0 {
			n = len(all)
		}
		for _, name := range all[0].Values {
			if f := over(all[:n], overValues[name]); f.Holds() {
				drawn = append(drawn, Drawn{File: fmt.Sprintf("%s-%d-%s-%s.svg", Over, all[0].Series, all[0].Over, name), Figure: f, Visible: true})
			}
		}
		all = all[n:]
	}
	return drawn
}

// over draws a quantity of the cells of a series, as bars by the setting that it varies, in the order
// of the spec.
func over(all []*cell, v quantity) plot.Figure {
	setting, names := all[0].Over, protocols(all)
	var categories []string
	original := map[*cell]*cell{}
	var alike []*cell
	for _, c := range all {
		if !contains(categories, c.at()) {
			categories = append(categories, c.at())
		}
		one := *c
		one.Case = c.alike()
		alike, original[&one] = append(alike, &one), c
	}
	panels, titles, common := split(alike, noAxis)
	f := plot.Figure{
		Title: fmt.Sprintf("%s over %s, %s", v.name, setting, v.unit), Sub: common + "; " + trialsNote + "; each panel has its own axis",
		X: setting, Y: v.unit, Legend: legend(names),
	}
	for i, cs := range panels {
		p := plot.Panel{Title: titles[i], Categories: categories}
		for n, name := range names {
			line := plot.Line{Series: n}
			for _, c := range cs {
				if c.Protocol != name {
					continue
				}
				if pt, ok := original[c].value(v.measure); ok {
					pt.X = float64(slices.Index(categories, original[c].at()))
					line.Points = append(line.Points, pt)
				}
			}
			p.Lines = append(p.Lines, line)
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}
