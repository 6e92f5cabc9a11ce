package sweep

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// The modes (nexmark bench --rescale-mode) of which the paper has a counterpart.
const (
	modeMove         = "move"
	modeOrderUnaware = "order-unaware"
	modeGradual      = "gradual"
	modeRestart      = "restart"
)

// rescaled returns the last rescale that was done; nil: there was none. An earlier one may be there to
// prepare it, in the warm-up.
func (r *Row) rescaled() *driver.Rescaled {
	if r.Bench == nil {
		return nil
	}
	for i := len(r.Bench.Rescaled) - 1; i >= 0; i-- {
		if d := &r.Bench.Rescaled[i]; d.NotDone == "" {
			return d
		}
	}
	return nil
}

// effect returns what a rescale did to the latency; nothing in it was seen if that was not measured.
func effect(r *driver.Rescaled) driver.Effect {
	if r.Effect == nil {
		return driver.Effect{P99Before: driver.Unseen(), Peak: driver.Unseen(), Back: driver.Unseen()}
	}
	return *r.Effect
}

// rescaledAt returns when a case first rescales in the measured time, from its start; 0: it does not.
func (c *Case) rescaledAt() time.Duration {
	for one := range strings.SplitSeq(c.Settings["rescale"], ",") {
		when, _, _ := strings.Cut(one, "=")
		when, _, _ = strings.Cut(when, ":")
		if at, err := time.ParseDuration(strings.TrimSpace(when)); err == nil && at > time.Duration(c.Warmup) {
			return at - time.Duration(c.Warmup)
		}
	}
	return 0
}

// amidst returns the rescales of a setting, WHEN:STAGE=TASKS,…, at moments spread over a number of
// events.
func amidst(rescales string, events int64) string {
	all := strings.Split(rescales, ",")
	for i, one := range all {
		rest := strings.IndexAny(one, ":=")
		if rest < 0 {
			continue // nexmark run says what is wrong with it
		}
		all[i] = fmt.Sprint(events*int64(i+1)/int64(len(all)+2)) + one[rest:]
	}
	return strings.Join(all, ",")
}

// rescaleTable lists what rescales did; nil: there was none.
func rescaleTable(all []*cell) *Table {
	t := &Table{
		Title: "Rescales",
		Note: "Median of trials. Peak: the greatest visible latency from the request until a second after the end. Back: until three tenths of a second in a row were at most 10 % above the p99 before. " +
			"Published: Meces (USENIX ATC 2022, §5), on a cluster, with other state and rates: compare shapes, not numbers.",
		Head: []string{"case", "mode", "tasks", "key groups moved", "steps", "settled, ms", "p99 before, ms", "peak, ms", "peak ÷ p99", "back after, ms", "published"},
	}
	for _, c := range all {
		i := slices.IndexFunc(c.rows, func(r *Row) bool { return r.rescaled() != nil })
		if i < 0 {
			continue
		}
		d := c.rows[i].rescaled()
		row := []string{c.Key(), d.Mode, fmt.Sprintf("%d → %d", d.From, d.To), fmt.Sprintf("%d of %d", d.GroupsMoved, d.KeyGroups), fmt.Sprint(d.Steps)}
		for _, f := range []func(r *driver.Rescaled) driver.MS{
			func(r *driver.Rescaled) driver.MS { return driver.MS(r.SettledMS) },
			func(r *driver.Rescaled) driver.MS { return effect(r).P99Before },
			func(r *driver.Rescaled) driver.MS { return effect(r).Peak },
			func(r *driver.Rescaled) driver.MS { return effect(r).Peak / effect(r).P99Before },
			func(r *driver.Rescaled) driver.MS { return effect(r).Back },
		} {
			text := "–"
			if p, ok := c.value(ofRescale("", f)); ok {
				text = plot.Number(p.Y)
			}
			row = append(row, text)
		}
		t.Rows, t.Void = append(t.Rows, append(row, published(c, d.Mode))), append(t.Void, c.void)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// published says what the paper has for a workload under the mode's counterpart: "" if nothing.
func published(c *cell, mode string) string {
	const slow = "dozens of seconds (Fig. 10, 11)"
	count := c.Workload == "count"
	switch mode {
	case modeMove:
		switch {
		case stateless(c):
			return "no peak (Fig. 9, 21, 22)"
		case count:
			return "peak below 600 ms with 10⁸ keys (Fig. 12), below 400 ms (Fig. 13)"
		}
		return "a tenth of the others' peak (Fig. 23–28)"
	case modeOrderUnaware:
		switch {
		case stateless(c):
			return "no peak (Fig. 9, 21, 22)"
		case count:
			return "peak of three orders of magnitude above usual (Fig. 12), seconds (Fig. 13)"
		}
		return slow
	case modeRestart:
		if count {
			return "three orders of magnitude above usual (Fig. 12); throughput 0 (Fig. 15)"
		}
		return "stops and starts, whatever the state (Fig. 9); " + slow
	case modeGradual:
		return "Megaphone: some 8000 ms all the time, Meces below 1000 ms (Fig. 20)"
	}
	return ""
}

// stateless reports whether a case has no state that could move.
func stateless(c *cell) bool { return c.Query == 1 || c.Query == 2 }

// rescaleClaims judges what the paper says of the order of migration, from the greatest latency under
// each mode.
func rescaleClaims(all []*cell) []Claim {
	type group struct {
		name      string
		stateless bool
		peaks     map[string]float64 // by mode
		p99       float64            // before, under the default mode
	}
	var groups []*group
	for _, c := range all {
		i := slices.IndexFunc(c.rows, func(r *Row) bool { return r.rescaled() != nil })
		if c.Over != "rescale-mode" || i < 0 || c.void || c.failed > 0 || c.Settings["surge"] != "" { // a surge has a peak of its own
			continue
		}
		peak, ok := c.value(overValues["peak"].measure)
		if !ok {
			continue
		}
		alike := c.alike()
		name := fmt.Sprintf("%d %s %s/s", c.Series, alike.label(), rateText(c.Rate))
		k := slices.IndexFunc(groups, func(g *group) bool { return g.name == name })
		if k < 0 {
			k, groups = len(groups), append(groups, &group{name: name, stateless: stateless(c), peaks: map[string]float64{}})
		}
		groups[k].peaks[c.at()] = peak.Y
		if c.at() == modeMove {
			p, _ := c.value(ofRescale("", func(r *driver.Rescaled) driver.MS { return effect(r).P99Before }))
			groups[k].p99 = p.Y
		}
	}
	if len(groups) == 0 {
		return nil
	}
	judge := func(c *Claim, holds func(g *group) (right, measured bool, text string)) {
		good, n := 0, 0
		for _, g := range groups {
			right, measured, text := holds(g)
			if !measured {
				continue
			}
			n++
			good += c.number(right, g.name, text)
		}
		c.verdict(good, n)
	}
	calm := Claim{ID: "M1", Text: "key groups that move in memory cost no peak: at most twice the p99 before, or 20 ms", Paper: "Meces §5.2: one tenth of the peak of the others, below 600 ms with 10⁸ keys"}
	judge(&calm, func(g *group) (bool, bool, string) {
		peak, ok := g.peaks[modeMove]
		return peak <= max(2*g.p99, 20), ok && g.p99 > 0, fmt.Sprintf("peak %s ms, p99 before %s ms", plot.Number(peak), plot.Number(g.p99))
	})
	out := []Claim{calm}
	for _, o := range []struct {
		id, mode, paper string
		factor          float64
	}{
		{"M2", modeOrderUnaware, "Meces §5.2, Fig. 10–12: ten to a thousand times", 2},
		{"M3", modeRestart, "Meces §5.2, Fig. 9–12: seconds, whatever the state", 5},
	} {
		c := Claim{ID: o.id, Text: fmt.Sprintf("%s has a greater peak than %s: at least %g times", o.mode, modeMove, o.factor), Paper: o.paper}
		judge(&c, func(g *group) (bool, bool, string) {
			move, ok1 := g.peaks[modeMove]
			other, ok2 := g.peaks[o.mode]
			none := g.stateless && o.mode == modeOrderUnaware // which then differs in nothing
			return other >= o.factor*move, ok1 && ok2 && !none, fmt.Sprintf("%s ms, %s ms: %.1f times", plot.Number(other), plot.Number(move), other/move)
		})
		out = append(out, c)
	}
	return out
}
