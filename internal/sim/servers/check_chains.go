package servers

import (
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// Promise 8: a writer's groups take effect in the order of their numbers, each once, and without a
// gap. A group that no reader has seen may have been trimmed before a reader looked; a group that was
// refused or had no effect is certainly a gap.
func checkChains(t *truth) {
	byWriter := map[string][]*group{}
	for _, g := range t.order {
		byWriter[g.writer] = append(byWriter[g.writer], g)
	}
	for _, g := range t.order {
		if g.number != 1 {
			continue
		}
		gs := byWriter[g.writer]
		slices.SortFunc(gs, func(a, b *group) int { return int(int64(a.number) - int64(b.number)) })
		var before *group // with a known place
		var gap *group    // the first without effect, or missing
		for _, g := range gs {
			if g.at() == 0 {
				if gap == nil && (g.outcome == void || g.outcome == refused || t.missing(g, before)) {
					gap = g
				}
				continue
			}
			if gap != nil {
				t.w.fail("chains", "%s takes effect at %d, though %s before it does not (%s %v)", g, g.at(), gap, gap.outcome, gap.why)
				return
			}
			if before != nil && g.at() < before.end() {
				t.w.fail("chains", "%s lies at %d, behind it %s at %d", before, before.at(), g, g.at())
				return
			}
			before = g
		}
	}
}

// missing reports whether a group would have been seen at the end if it existed: its place would be
// above before's.
func (t *truth) missing(g, before *group) bool {
	lowest := sharedlog.First
	if before != nil {
		lowest = before.end()
	}
	for _, r := range t.readings {
		if r.who == "end" && r.over && r.from <= lowest && slices.Contains(g.tags[0], r.tags[0]) {
			return true
		}
	}
	return false
}
