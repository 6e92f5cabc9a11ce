package embedded

import (
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// judge checks a life: missing records in readings, writers' chains, conditions.
func (t *truth) judge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := make([]sharedlog.LSN, 0, len(t.records))
	for lsn := range t.records {
		known = append(known, lsn)
	}
	slices.Sort(known)
	for _, r := range t.readings {
		t.silence(r, known)
	}
	t.chains()
	t.conditions()
}

// silence checks that a reader has shown every known record of its tags between its start and its
// frontier.
func (t *truth) silence(r *reading, known []sharedlog.LSN) {
	i, _ := slices.BinarySearch(known, r.from)
	for ; i < len(known) && known[i] < r.frontier; i++ {
		if lsn := known[i]; meet(t.tagsAt(lsn), r.tags) {
			if _, shown := slices.BinarySearch(r.seen, lsn); !shown {
				g := t.records[lsn]
				t.fail("contiguous", "%s of %v from %d on was shown all below %d without %d, of %s, known by %s", r.who, r.tags, r.from, r.frontier, lsn, g, g.by)
				return
			}
		}
	}
}

// chains checks that a writer's groups are in the order of their numbers, and that none has effect
// after one without.
func (t *truth) chains() {
	last := map[string]*group{} // by writer: its newest group in the order that has effect, or its first without
	for _, g := range t.order {
		before := last[g.name]
		switch gap := before != nil && before.first == 0; {
		case g.first == 0:
			if !gap && (g.outcome == void || g.outcome == absent || g.outcome == refused) {
				last[g.name] = g
			}
		case gap:
			t.fail("chains", "%s has effect at %d, and %s before it has none", g, g.first, before)
			return
		case before != nil && (before.number >= g.number || before.end() > g.first):
			t.fail("chains", "%s at %d comes before %s at %d", g, g.first, before, before.first)
			return
		default:
			last[g.name] = g
		}
	}
}

// lose forgets what lies at or above the tail of the opened log, and checks that it may be missing:
// least is the lowest tail that the loss may leave.
func (t *truth) lose(tail, least sharedlog.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tail < least {
		t.fail("acknowledged", "the log was opened at %d, and %d was promised", tail, least)
	}
	lost := 0
	for _, g := range t.order {
		switch {
		case g.first == 0 || g.end() <= tail:
			continue
		case g.first < tail:
			t.fail("groups", "%s lies at %d, and the log was opened at %d", g, g.first, tail)
		}
		for lsn := g.first; lsn < g.end(); lsn++ {
			delete(t.records, lsn)
			lost++
		}
		g.first, g.outcome = 0, absent
	}
	if lost > 0 {
		t.counts["losses"]++
		t.tell("%d records were lost, at and above %d", lost, tail)
	}
	t.acked = min(t.acked, tail)
	for _, tr := range t.trims {
		tr.asked, tr.done = min(tr.asked, tail), min(tr.done, tail)
	}
}

// markAbsent marks the groups without an outcome that are not in the log: the readings have shown all
// records below the tail, starting at the oldest.
func (t *truth) markAbsent(whole map[sharedlog.Tag]*reading, tail sharedlog.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.order {
		if r := whole[g.tags[0][0]]; g.outcome == unknown && g.first == 0 && r != nil && r.from <= g.least && r.frontier >= tail {
			g.outcome = absent
		}
	}
}
