package sweep

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// ofExchange returns a figure of what stages have sent each other, which may be 0.
func ofExchange(name string, f func(b *driver.Report) float64) measure {
	return measure{name, func(r *Row) (float64, int64) {
		if r.Bench == nil || r.Bench.Exchange == nil {
			return 0, 0
		}
		return f(r.Bench), 1
	}}
}

var (
	exchangedBytes = ofExchange("bytes that stages exchange", func(b *driver.Report) float64 { return b.Exchange.BytesPerEvent })
	exchangedItems = ofExchange("items that stages exchange", func(b *driver.Report) float64 {
		if b.Achieved == 0 {
			return 0
		}
		return float64(b.Exchange.Items) / (b.Achieved * b.Seconds)
	})
	exchangedRemotely = measure{"items whose receiver is on another worker", func(r *Row) (float64, int64) {
		if r.Bench == nil || r.Bench.Exchange == nil || r.Bench.Exchange.RemoteShare == nil {
			return 0, 0
		}
		return 100 * *r.Bench.Exchange.RemoteShare, 1
	}}
)

// The most that each exchange may send of what keyby sends, and how many times faster than keyby the
// last two must be on a link that is capped.
const (
	mostLocal  = 0.01
	mostGlobal = 0.001
	fasterOn   = 3.0
)

// exchangeClaims judges what Trilink says of what is exchanged, series by series: of the bytes an event
// compared with those of keyby, and of the rate where --link-rate caps the link.
func exchangeClaims(all []*cell) []Claim {
	type group struct {
		name        string
		capped      bool
		bytes, rate map[string]float64 // by exchange
	}
	var groups []*group
	of := map[string]*group{}
	for _, c := range all {
		if c.Over != "exchange" || c.void || c.failed > 0 {
			continue
		}
		bytes, ok := c.value(exchangedBytes)
		if !ok {
			continue
		}
		alike := c.alike()
		g := of[alike.Key()]
		if g == nil {
			g = &group{name: fmt.Sprintf("%d %s", c.Series, alike.label()), bytes: map[string]float64{}, rate: map[string]float64{}}
			if link := c.Settings["link-rate"]; link != "" {
				g.name, g.capped = fmt.Sprintf("%s, link of %s/s", g.name, link), true
			}
			of[alike.Key()], groups = g, append(groups, g)
		}
		rate, _ := c.value(overValues["throughput"].measure)
		g.bytes[c.at()], g.rate[c.at()] = bytes.Y, rate.Y
	}
	if !slices.ContainsFunc(groups, func(g *group) bool { return g.bytes["keyby"] > 0 }) {
		return nil
	}
	var out []Claim
	for _, x := range []struct {
		id, exchange, text, paper string
		most                      float64
	}{
		{"X1", "local", "partial results of windows (local) are at most 1.0 % of the bytes that keyby exchanges", "Trilink §6.4: 1.49 %", mostLocal},
		{"X2", "global", "changes that matter to others (global) are at most 0.1 % of the bytes that keyby exchanges", "Trilink §6.4: none", mostGlobal},
		{"X3", "ahead", "sources whose partitions are those of the keys (ahead) exchange nothing", "Trilink §6.4: none", 0},
	} {
		c, good := Claim{ID: x.id, Text: x.text, Paper: x.paper}, 0
		for _, g := range groups {
			b, ok := g.bytes[x.exchange]
			if base := g.bytes["keyby"]; ok && base > 0 {
				good += c.number(b <= x.most*base, g.name, fmt.Sprintf("%.3f %% (%s of %s bytes an event)", 100*b/base, plot.Number(b), plot.Number(base)))
			}
		}
		c.verdict(good, len(c.Numbers))
		out = append(out, c)
	}
	fast, good := Claim{
		ID: "X4", Text: "on a capped link local, ahead and global take at least three times the events of keyby",
		Paper: "Trilink §6.4, Fig. 17: 3.92 times or more",
	}, 0
	for _, g := range groups {
		for _, how := range []string{"local", "ahead", "global"} {
			r, ok := g.rate[how]
			if base := g.rate["keyby"]; ok && base > 0 && g.capped {
				good += fast.number(r >= fasterOn*base, g.name, fmt.Sprintf("%s %.1f times (%s, %s events/s)", how, r/base, plot.Number(r), plot.Number(base)))
			}
		}
	}
	if len(fast.Numbers) > 0 {
		fast.verdict(good, len(fast.Numbers))
		out = append(out, fast)
	}
	return out
}

// number adds what was measured of a case; it returns 1 if that is as claimed.
func (c *Claim) number(right bool, name, text string) int {
	mark, good := "✗", 0
	if right {
		mark, good = "✓", 1
	}
	c.Numbers = append(c.Numbers, fmt.Sprintf("%s series %s: %s", mark, name, text))
	return good
}
