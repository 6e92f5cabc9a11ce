package sweep

import (
	"fmt"
	"maps"
	"slices"

	"tailrace.dev/tailrace/nexmark/sweep/overlay"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// peerLabels name the peer's modes.
var peerLabels = map[string]string{"": "sums", "list": "lists", "perkey": "sums with a clock for each key, written by hand"}

// grainOf is a case without what its clocks are: cases that are equal differ in nothing else.
func grainOf(c *cell) (key, grain, late string) {
	own := maps.Clone(c.Settings)
	grain, late = own["grain"], own["late"]
	if late == "" {
		late = "commit"
	}
	for _, name := range []string{"grain", "late", "key-delay"} {
		delete(own, name)
	}
	return fmt.Sprintf("%s %s %s/s p%d %s", c.label(), c.Protocol, rateText(c.Rate), c.Parallelism, settingsText(own)), grain, late
}

// grains are the figures of cases that differ in their clocks only, by "GRAIN late=LATE".
type grains struct {
	name             string
	settings         map[string]string
	throughput, p50s map[string]float64
}

func grainGroups(all []*cell) (groups []*grains) {
	for _, c := range all {
		if c.Settings["grain"] == "" || c.void || c.failed > 0 {
			continue
		}
		name, grain, late := grainOf(c)
		i := slices.IndexFunc(groups, func(g *grains) bool { return g.name == name })
		if i < 0 {
			i, groups = len(groups), append(groups, &grains{name: name, settings: c.Settings, throughput: map[string]float64{}, p50s: map[string]float64{}})
		}
		if p, ok := c.value(overValues["throughput"].measure); ok && c.Rate == 0 {
			groups[i].throughput[grain+" "+late] = p.Y
		}
		if p, ok := c.value(overValues["visible-p50"].measure); ok && c.Rate > 0 {
			groups[i].p50s[grain+" "+late] = p.Y
		}
	}
	return groups
}

// grainClaims judges what the paper says of clocks of keys, beside this engine's clock of a task, and beside
// the peer. What is ahead of the peer only is not ahead of the clock of a task.
func grainClaims(all []*cell, peer overlay.Results) (out []Claim) {
	groups := grainGroups(all)
	if len(groups) == 0 {
		return nil
	}
	inOrder := func(g *grains) bool { return g.settings["disorder-share"] == "0" }
	for _, o := range []struct {
		id, text, paper string
		aggregate       string
		inOrder         bool
		than            string
		least           float64
	}{
		{"K1", "of sums, a clock for each key is at least 0.97 times as fast as the task's with late items once a commit", "–", "sum", false, "task commit", 0.97},
		{"K2", "of sums, a clock for each key is at least 1.15 times as fast as the task's with a result for each late item", "Trilink §6, Table 10: 1.5 to 8 times", "sum", false, "task each", 1.15},
		{"K3", "of lists, which are computed again for each late item, a clock for each key is at least 5 times as fast as the task's", "Trilink §6, Table 10: 1.5 to 8 times", "list", false, "task each", 5},
		{"K4", "of items in order, a clock for each key is at least 0.95 times as fast as the task's", "Trilink §6.5: 8 bytes a key and timers", "sum", true, "task commit", 0.95},
	} {
		c := Claim{ID: o.id, Text: o.text, Paper: o.paper}
		good, n := 0, 0
		for _, g := range groups {
			aggregate := g.settings["aggregate"]
			if aggregate == "" {
				aggregate = "sum"
			}
			key, ok1 := g.throughput["key commit"]
			task, ok2 := g.throughput[o.than]
			if !ok1 || !ok2 || aggregate != o.aggregate || inOrder(g) != o.inOrder {
				continue
			}
			n++
			mark := "✗"
			if key >= o.least*task {
				good++
				mark = "✓"
			}
			c.Numbers = append(c.Numbers, fmt.Sprintf("%s %s: %s and %s events/s, %.2f×", mark, g.name, plot.Number(key), plot.Number(task), key/task))
		}
		c.verdict(good, n)
		out = append(out, c)
	}
	latency := Claim{ID: "K5", Text: "with a clock for each key a row is visible at least 10 times as soon as with the task's (median)", Paper: "Trilink §4.1: the disorder of the key, not of the stream"}
	good, n := 0, 0
	for _, g := range groups {
		key, ok1 := g.p50s["key commit"]
		task, ok2 := g.p50s["task commit"]
		if !ok1 || !ok2 {
			continue
		}
		n++
		mark := "✗"
		if 10*key <= task {
			good++
			mark = "✓"
		}
		latency.Numbers = append(latency.Numbers, fmt.Sprintf("%s %s: %s and %s ms", mark, g.name, plot.Number(key), plot.Number(task)))
	}
	latency.verdict(good, n)
	return append(append(out, latency), peerClaim(groups, peer)...)
}

// verdict says for how many of n comparisons a claim holds.
func (c *Claim) verdict(good, n int) {
	switch {
	case n == 0:
		c.Verdict = "not measured"
	case good == n:
		c.Verdict = "holds"
	case good == 0:
		c.Verdict = "does not hold"
	default:
		c.Verdict = fmt.Sprintf("holds for %d of %d", good, n)
	}
}

// peerClaim compares the peer's results with those of the same share of items that are behind, whatever the
// bound of the watermark; nil without any.
func peerClaim(groups []*grains, peer overlay.Results) []Claim {
	if len(peer.Clocks) == 0 {
		return nil
	}
	c := Claim{ID: "K6", Text: "with a clock for each key, sums are at least 1.5 times as fast as the peer's at bound 0", Paper: "– (ahead of the peer, which is not to say ahead of this engine's clock of a task: K1)"}
	good, n := 0, 0
	for _, p := range peer.Clocks {
		best := 0.0
		for _, g := range groups {
			share, aggregate := g.settings["disorder-share"], "list"
			if share == "" {
				share = "50"
			}
			if g.settings["aggregate"] != "list" {
				aggregate = "sum"
			}
			if share != fmt.Sprint(p.Disorder) || (p.Mode == "list") != (aggregate == "list") || g.settings["sensors"] != "" {
				continue
			}
			best = max(best, g.throughput["key commit"])
		}
		if best == 0 {
			continue
		}
		text := fmt.Sprintf("%s, %.0f %% behind, bound %.0f ms: %s and %s events/s, %.2f×", peerLabels[p.Mode], p.Disorder, p.Bound, plot.Number(best), plot.Number(p.Rate), best/p.Rate)
		if p.Mode != "" || p.Bound != 0 { // shown, not judged
			c.Numbers = append(c.Numbers, text)
			continue
		}
		n++
		mark := "✗"
		if best >= 1.5*p.Rate {
			good++
			mark = "✓"
		}
		c.Numbers = append(c.Numbers, mark+" "+text)
	}
	c.verdict(good, n)
	return []Claim{c}
}
