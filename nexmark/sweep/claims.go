package sweep

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Claim is a sentence that rows can confirm or refute.
type Claim struct {
	ID, Text string
	// Paper is what was published.
	Paper string
	// Verdict: holds, does not hold, holds in part, not measured.
	Verdict string
	// Numbers are the figures, by query.
	Numbers []string
}

// versus is one protocol's latency as a multiple of another's, all else equal.
type versus struct {
	c        *cell // the first one's
	p50, p99 float64
}

// against compares cells of protocol a with cells of b that differ in nothing else. It compares
// only cells that kept up in every trial and are not void, of NEXMark's queries: the papers' claims
// are about these.
func against(all []*cell, a, b, which string) (out []versus) {
	p50, p99 := latencyOf(which, false), latencyOf(which, true)
	for _, x := range all {
		if x.Protocol != a || x.Query == 0 || !x.sound() {
			continue
		}
		for _, y := range all {
			twin := y.Case
			twin.Protocol = a
			if y.Protocol != b || !y.sound() || twin.Key() != x.Key() {
				continue
			}
			xa, ok1 := x.value(p50)
			ya, ok2 := y.value(p50)
			xb, _ := x.value(p99)
			yb, _ := y.value(p99)
			if ok1 && ok2 && ya.Y > 0 && yb.Y > 0 {
				out = append(out, versus{c: x, p50: xa.Y / ya.Y, p99: xb.Y / yb.Y})
			}
		}
	}
	return out
}

// byQuery groups comparisons; queries are in order.
func byQuery(list []versus) (queries []int, of map[int][]versus) {
	of = map[int][]versus{}
	for _, v := range list {
		if of[v.c.Query] == nil {
			queries = append(queries, v.c.Query)
		}
		of[v.c.Query] = append(of[v.c.Query], v)
	}
	slices.Sort(queries)
	return queries, of
}

// Claims judges Impeller's claims C1 and C2 (its artifact appendix, §A.4), and this project's claim
// about fused.
func Claims(rows []*Row) []Claim {
	all := of(cells(rows), LatencyOverRate, CommitInterval, AgainstUnsafe)
	if len(all) == 0 {
		return nil
	}
	var out []Claim
	for _, which := range []string{"visible", "emit"} {
		c := Claim{
			ID: "C1", Text: "marker beats txn, more so at short commit intervals (txn ÷ marker, " + which + " latency)",
			Paper: "Impeller §5.3.2: p50 up to 3.0×; Q4 at 10 ms: p50 1.4×, p99 3.1×",
		}
		c.judge(against(of(all, CommitInterval), "txn", "marker", which), "txn", "marker", " in a series of commit intervals", shorterIsMore)
		out = append(out, c)
	}
	for _, which := range []string{"visible", "emit"} {
		c := Claim{
			ID: "C2", Text: "marker beats aligned on the stateful queries, Q3 to Q8 (aligned ÷ marker, " + which + " latency)",
			Paper: "Impeller §5.3.3: p50 up to 4.5×, p99 up to 5.8×",
		}
		c.judge(stateful(against(all, "aligned", "marker", which)), "aligned", "marker", "", func(list []versus) (bool, string) {
			a, b := ranges(list)
			ok := !slices.ContainsFunc(list, func(v versus) bool { return v.p50 <= 1 || v.p99 <= 1 })
			return ok, a + ", " + b
		})
		out = append(out, c)
	}
	// The geometric mean of a query's cases; the range is shown beside it.
	most := func(bound float64) func(list []versus) (bool, string) {
		return func(list []versus) (bool, string) {
			a, _ := ranges(list)
			logs := 0.0
			for _, v := range list {
				logs += math.Log(v.p50)
			}
			mean := math.Exp(logs / float64(len(list)))
			if len(list) > 1 {
				a = fmt.Sprintf("mean %.2f×, %s", mean, a)
			}
			return mean <= bound, a
		}
	}
	floor := Claim{ID: "F1", Text: "fused costs next to nothing: p50 of visible latency at most 1.05 × unsafe's at the same flush (fused ÷ unsafe)", Paper: "Impeller §5.3.4: its markers cost 1.2–2.0×"}
	floor.judge(against(all, "fused", "unsafe", "visible"), "fused", "unsafe", "", most(1.05))
	beats := Claim{ID: "F2", Text: "fused beats marker on Q3 to Q8: p50 of visible latency at most 0.6 × (fused ÷ marker)", Paper: "–"}
	beats.judge(stateful(against(all, "fused", "marker", "visible")), "fused", "marker", "", most(0.6))
	return append(out, floor, beats)
}

func stateful(list []versus) []versus {
	return slices.DeleteFunc(list, func(v versus) bool { return v.c.Query < 3 })
}

// judge fills in the verdict, query by query. within names the cases of a and b that it compares,
// if these are not all.
func (c *Claim) judge(list []versus, a, b, within string, holds func(list []versus) (bool, string)) {
	if len(list) == 0 {
		c.Verdict = "not measured"
		c.Numbers = []string{fmt.Sprintf("no two sound cases of %s and %s%s that differ in nothing else", a, b, within)}
		return
	}
	queries, of := byQuery(list)
	good := 0
	for _, q := range queries {
		ok, text := holds(of[q])
		mark := "✗"
		if ok {
			good++
			mark = "✓"
		}
		c.Numbers = append(c.Numbers, fmt.Sprintf("%s Q%d %s", mark, q, text))
	}
	switch good {
	case len(queries):
		c.Verdict = "holds"
	case 0:
		c.Verdict = "does not hold"
	default:
		c.Verdict = fmt.Sprintf("holds for %d of %d queries", good, len(queries))
	}
}

func ranges(list []versus) (p50, p99 string) {
	span := func(name string, f func(v versus) float64) string {
		low, high := f(list[0]), f(list[0])
		for _, v := range list {
			low, high = min(low, f(v)), max(high, f(v))
		}
		if fmt.Sprintf("%.2f", low) == fmt.Sprintf("%.2f", high) {
			return fmt.Sprintf("%s %.2f×", name, low)
		}
		return fmt.Sprintf("%s %.2f–%.2f×", name, low, high)
	}
	return span("p50", func(v versus) float64 { return v.p50 }), span("p99", func(v versus) float64 { return v.p99 })
}

// shorterIsMore reports whether a is better at the shortest interval, and by more there than at the
// longest.
func shorterIsMore(list []versus) (bool, string) {
	slices.SortStableFunc(list, func(a, b versus) int { return cmp.Compare(b.c.CommitInterval, a.c.CommitInterval) })
	var parts []string
	for _, v := range list {
		parts = append(parts, fmt.Sprintf("%v: p50 %.2f×, p99 %.2f×", v.c.CommitInterval, v.p50, v.p99))
	}
	long, short := list[0], list[len(list)-1]
	ok := short.p50 > 1 && short.p99 > 1 && short.p50 >= 0.99*long.p50 // a hundredth is noise
	return ok, strings.Join(parts, "; ")
}
