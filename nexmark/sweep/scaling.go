package sweep

import (
	"fmt"
	"math"
	"strings"

	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// mostOverhead is how much more processor time an event may take than in the cheapest case with
// another number of tasks.
const mostOverhead = 0.15

// scalingClaims judges, series by series, whether an event takes the same processor time however many tasks
// a stage has. On a machine with fewer processors than tasks this is what can be said of scaling: the
// throughput is bounded by the processors, and says nothing of the tasks.
func scalingClaims(all []*cell) []Claim {
	type group struct {
		name    string
		numbers []string
		least   float64
		most    float64
	}
	var groups []*group
	of := map[string]*group{}
	for _, c := range all {
		if c.Over != "parallelism" || c.void || c.failed > 0 || c.Rate != 0 {
			continue
		}
		cpu, ok := c.value(overValues["cpu"].measure)
		if !ok {
			continue
		}
		alike := c.alike()
		g := of[alike.Key()]
		if g == nil {
			g = &group{name: fmt.Sprintf("series %d %s", c.Series, alike.label()), least: math.Inf(1)}
			of[alike.Key()], groups = g, append(groups, g)
		}
		g.numbers = append(g.numbers, fmt.Sprintf("p%s: %s", c.at(), plot.Number(cpu.Y)))
		g.least, g.most = min(g.least, cpu.Y), max(g.most, cpu.Y)
	}
	if len(groups) == 0 {
		return nil
	}
	claim := Claim{
		ID:    "S1",
		Text:  fmt.Sprintf("an event takes the same processor time with any number of tasks, within %.0f %%", 100*mostOverhead),
		Paper: "Trilink §6.2, Figures 5 and 14: throughput grows in proportion to the nodes (not measured here: all tasks share one machine)",
	}
	good, n := 0, 0
	for _, g := range groups {
		if len(g.numbers) < 2 {
			continue
		}
		n++
		mark := "✗"
		if g.most <= (1+mostOverhead)*g.least {
			good++
			mark = "✓"
		}
		claim.Numbers = append(claim.Numbers, fmt.Sprintf("%s %s: %s ns an event, %.2f×", mark, g.name, strings.Join(g.numbers, ", "), g.most/g.least))
	}
	claim.verdict(good, n)
	return []Claim{claim}
}
