package sweep

import (
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/nexmark/sweep/overlay"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// Drawn is a figure with the name of its file.
type Drawn struct {
	File    string
	Figure  plot.Figure
	Visible bool // latency that a reader of committed rows sees; the papers measure at emit
}

const trialsNote = "median of trials, whiskers least to greatest"

// Figures draws what the rows hold, with the peer's results for comparison.
func Figures(rows []*Row, peer overlay.Results) (all []Drawn) {
	every := cells(rows)
	for _, which := range []string{"visible", "emit"} {
		for _, p99 := range []bool{false, true} {
			m := latencyOf(which, p99)
			quantile := "p50"
			if p99 {
				quantile = "p99"
			}
			add := func(name string, f plot.Figure) {
				if f.Holds() {
					all = append(all, Drawn{File: fmt.Sprintf("%s-%s-%s.svg", name, which, quantile), Figure: f, Visible: which == "visible"})
				}
			}
			add(string(LatencyOverRate), overRate(of(every, LatencyOverRate), m, peer))
			add(string(CommitInterval), overInterval(of(every, CommitInterval), m))
			add(string(AgainstUnsafe)+"-latency", overRate(of(every, AgainstUnsafe), m, peer))
			add(string(AgainstUnsafe), ratios(of(every, AgainstUnsafe), m))
		}
	}
	if f := throughputs(of(every, Throughput)); f.Holds() {
		all = append(all, Drawn{File: string(Throughput) + ".svg", Figure: f, Visible: true})
	}
	return slices.Concat(all, overs(of(every, Over)), timelines(of(every, Timeline)))
}

func unitOf(m measure) string { return m.name[:3] + " ms" }

// overRate has the shape of Impeller's Figure 7.
func overRate(all []*cell, m measure, peer overlay.Results) plot.Figure {
	panels, titles, common := split(all, byRate)
	names := protocols(all)
	f := plot.Figure{
		Title: m.name + " over rate, ms", Sub: common + "; " + trialsNote + "; each panel has its own axes",
		X: "events/s", Y: unitOf(m), Legend: legend(names),
	}
	peers := false
	for i, cs := range panels {
		p := plot.Panel{Title: titles[i]}
		for n, name := range names {
			p.Lines = append(p.Lines, plot.Line{Series: n, Points: points(cs, name, m)})
		}
		if line := peerLine(cs, m, peer); len(line) > 0 {
			peers = true
			p.Lines = append(p.Lines, plot.Line{Series: len(names), Points: line})
		}
		f.Panels = append(f.Panels, p)
	}
	if peers {
		f.Legend = append(f.Legend, plot.Series{Name: peer.Name, Style: plot.Peer})
	}
	return f
}

// points returns the points of a protocol, by rate.
func points(cs []*cell, protocol string, m measure) (pts []plot.Point) {
	for _, c := range cs {
		if c.Protocol != protocol {
			continue
		}
		if p, ok := c.value(m); ok {
			pts = append(pts, p)
		}
	}
	slices.SortStableFunc(pts, func(a, b plot.Point) int { return cmp.Compare(a.X, b.X) })
	return pts
}

// peerLine returns the peer's steps for the panel's query, at its commit interval.
func peerLine(cs []*cell, m measure, peer overlay.Results) (pts []plot.Point) {
	for _, s := range peer.Steps {
		if s.Query != cs[0].Query || cs[0].Query == 0 || Duration(s.Commit) != cs[0].CommitInterval || s.Replicas != max(1, cs[0].Replicas) {
			continue
		}
		q := s.Emit
		if m.name[7:14] == "visible" {
			q = s.Visible
		}
		if q == nil {
			continue
		}
		v := q.P50
		if m.name[:3] == "p99" {
			v = q.P99
		}
		pts = append(pts, plot.Point{X: s.Rate, Y: v, Hollow: !s.OK, Tip: fmt.Sprintf("%s at %s/s", plot.Number(v), plot.Number(s.Rate))})
	}
	slices.SortStableFunc(pts, func(a, b plot.Point) int { return cmp.Compare(a.X, b.X) })
	return pts
}

// overInterval has the shape of Impeller's Figure 8.
func overInterval(all []*cell, m measure) plot.Figure {
	panels, titles, common := split(all, byCommit)
	names := protocols(all)
	f := plot.Figure{
		Title: m.name + " by commit interval, ms", Sub: common + "; " + trialsNote + "; each panel has its own axis",
		X: "commit interval", Y: unitOf(m), Legend: legend(names),
	}
	for i, cs := range panels {
		var intervals []Duration
		for _, c := range cs {
			if !contains(intervals, c.CommitInterval) {
				intervals = append(intervals, c.CommitInterval)
			}
		}
		slices.Sort(intervals)
		p := plot.Panel{Title: titles[i]}
		for _, d := range intervals {
			p.Categories = append(p.Categories, d.String())
		}
		for n, name := range names {
			line := plot.Line{Series: n}
			for _, c := range cs {
				if c.Protocol != name {
					continue
				}
				if pt, ok := c.value(m); ok {
					pt.X = float64(slices.Index(intervals, c.CommitInterval))
					line.Points = append(line.Points, pt)
				}
			}
			p.Lines = append(p.Lines, line)
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}

// ratios has the shape of Impeller's Figure 9, as a ratio: the latency as a multiple of the latency
// of unsafe at the same rate. Each value is the median of the trials.
func ratios(all []*cell, m measure) plot.Figure {
	panels, titles, common := split(all, byRate)
	names := slices.DeleteFunc(protocols(all), func(n string) bool { return n == "unsafe" })
	f := plot.Figure{
		Title: m.name + ", as a multiple of unsafe's", Sub: common + "; ratio of medians; the dotted line is unsafe", X: "events/s", Y: "× unsafe", Legend: legend(names),
	}
	for i, cs := range panels {
		p := plot.Panel{Title: titles[i], Rule: 1}
		floor := points(cs, "unsafe", m)
		for n, name := range names {
			line := plot.Line{Series: n}
			for _, pt := range points(cs, name, m) {
				at := slices.IndexFunc(floor, func(u plot.Point) bool { return u.X == pt.X })
				if at < 0 || floor[at].Y == 0 {
					continue
				}
				u := floor[at]
				pt.Y, pt.Lo, pt.Hi = pt.Y/u.Y, 0, 0
				pt.Hollow = pt.Hollow || u.Hollow
				pt.Void = pt.Void || u.Void
				pt.Tip = fmt.Sprintf("%.2f times unsafe", pt.Y)
				line.Points = append(line.Points, pt)
			}
			p.Lines = append(p.Lines, line)
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}

var achieved = measure{name: "events/s", of: func(r *Row) (float64, int64) {
	if r.Bench == nil {
		return 0, 0
	}
	return r.Bench.Achieved, 1
}}

// throughputs draws how many events a second one run consumes, as bars by query.
func throughputs(all []*cell) plot.Figure {
	if len(all) == 0 {
		return plot.Figure{}
	}
	// One panel shows all queries with the same settings.
	names := protocols(all)
	var workloads []*Case
	index := func(c *Case) int {
		return slices.IndexFunc(workloads, func(o *Case) bool { return c.before(o) == 0 })
	}
	for _, c := range all {
		if index(&c.Case) < 0 {
			workloads = append(workloads, &c.Case)
		}
	}
	slices.SortFunc(workloads, (*Case).before)
	alike := make([]*cell, len(all))
	for i, c := range all {
		one := *c
		one.Query, one.Workload = 0, ""
		alike[i] = &one
	}
	panels, titles, common := split(alike, byRate)
	f := plot.Figure{
		Title: "Events a second that one run consumes, as fast as they are taken", Sub: common + "; " + trialsNote,
		X: "query", Y: "events/s", Legend: legend(names),
	}
	for i, cs := range panels {
		p := plot.Panel{Title: titles[i]}
		if len(panels) == 1 {
			p.Title = "all queries"
		}
		for _, w := range workloads {
			p.Categories = append(p.Categories, w.label())
		}
		for n, name := range names {
			line := plot.Line{Series: n}
			for j, c := range alike {
				if c.Protocol != name || !contains(cs, c) {
					continue
				}
				if pt, ok := c.value(achieved); ok {
					pt.X = float64(index(&all[j].Case))
					line.Points = append(line.Points, pt)
				}
			}
			p.Lines = append(p.Lines, line)
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}
