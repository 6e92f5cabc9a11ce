package servers

import (
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// Promise 4: a conditional group takes effect only where its key holds its value: after the change
// that set it, and before the one that replaced it.
func checkConditions(t *truth) {
	type span struct{ from, to sharedlog.LSN }
	type keyValue struct{ key, value string }
	held := map[keyValue]*span{}
	at := func(key, value string) *span {
		k := keyValue{key, value}
		if held[k] == nil {
			held[k] = &span{}
		}
		return held[k]
	}
	byPlace := map[string][]*change{}
	for _, c := range t.changes {
		if c.place == 0 {
			continue
		}
		at(c.key, c.value).from = c.place
		if s := at(c.key, c.old); c.old != "" {
			s.to = c.place
		}
		byPlace[c.key] = append(byPlace[c.key], c)
	}
	for key, cs := range byPlace {
		slices.SortFunc(cs, func(a, b *change) int { return int(int64(a.place) - int64(b.place)) })
		// A value never returns, so the next known value in the order ends it.
		for i := 1; i < len(cs); i++ {
			if s := at(key, cs[i-1].value); s.to == 0 || s.to > cs[i].place {
				s.to = cs[i].place
			}
		}
	}
	for _, g := range t.order {
		if g.cond.Key == "" || g.at() == 0 {
			continue
		}
		s := held[keyValue{g.cond.Key, string(g.cond.Value)}]
		if s == nil {
			continue
		}
		if s.from != 0 && g.at() < s.from || s.to != 0 && g.at() >= s.to {
			t.w.fail("conditions", "%s took effect at %d under %s = %s, which held from %d to %d (0: not known)",
				g, g.at(), g.cond.Key, g.cond.Value, s.from, s.to)
			return
		}
	}
	// Conversely, a group has effect where its condition holds: it is refused only if a client
	// replaced the value, or tried to, before the answer. A refusal is final.
	replaced := map[keyValue]int{} // when the first replacement began
	for _, k := range t.keys {
		if k.get || !k.ok && !k.unknown {
			continue
		}
		if was, ok := replaced[keyValue{k.key, k.old}]; !ok || k.from < was {
			replaced[keyValue{k.key, k.old}] = k.from
		}
	}
	for _, g := range t.order {
		if g.outcome != void {
			continue
		}
		if g.cond.Key == "" {
			t.w.fail("conditions", "%s, under no condition, was answered with %q", g, g.why)
			return
		}
		if from, ok := replaced[keyValue{g.cond.Key, string(g.cond.Value)}]; !ok || from > g.answeredAt {
			t.w.fail("conditions", "%s was answered with %q, though no client had replaced %s = %s", g, g.why, g.cond.Key, g.cond.Value)
			return
		}
	}
}
