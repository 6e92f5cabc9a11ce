package handover

import (
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// partsAtOnce is how many sub-groups a receiver asks for in one request, if no record waits for them. A record
// that does waits for two such answers at most.
const partsAtOnce = 16

// asks are the key groups, or their parts, that a fetch has not asked for.
type asks struct {
	parts bool // groups come part by part
	rest  []*lacking
}

// lacking is a key group that was not asked for, or of which some parts were not.
type lacking struct {
	group int
	parts []int // the next one first; the head is the first one that is asked for
	// urgent are those that records wait for.
	urgent []int
}

// ask is a request: for a whole group, if it has no parts.
type ask struct {
	group int
	parts []int
}

// newAsks returns the asks for some groups.
func newAsks(groups []int, parts bool) asks {
	a := asks{parts: parts}
	for _, g := range groups {
		l := &lacking{group: g}
		if parts {
			l.parts = append(l.parts, exec.Head)
			for p := range exec.Parts {
				l.parts = append(l.parts, p)
			}
		}
		a.rest = append(a.rest, l)
	}
	return a
}

// first makes some groups come before others.
func (a *asks) first(groups []int) {
	slices.SortStableFunc(a.rest, func(x, y *lacking) int { return rank(groups, x.group) - rank(groups, y.group) })
}

func rank(groups []int, g int) int {
	if slices.Contains(groups, g) {
		return 0
	}
	return 1
}

// demand makes parts of a group come before others, and the head before them.
func (a *asks) demand(group int, parts []int) {
	for _, l := range a.rest {
		if l.group != group {
			continue
		}
		for _, p := range parts {
			if slices.Contains(l.parts, p) && !slices.Contains(l.urgent, p) {
				l.urgent = append(l.urgent, p)
			}
		}
	}
}

// next returns what to ask for now; urgent says that a record waits for it.
func (a *asks) next() (of ask, urgent, ok bool) {
	if len(a.rest) == 0 {
		return ask{}, false, false
	}
	at := max(0, slices.IndexFunc(a.rest, func(l *lacking) bool { return len(l.urgent) > 0 }))
	l := a.rest[at]
	of = ask{group: l.group}
	switch {
	case !a.parts:
	case len(l.urgent) > 0:
		urgent = true
		if l.parts[0] == exec.Head && !slices.Contains(l.urgent, exec.Head) {
			of.parts = append(of.parts, exec.Head)
		}
		of.parts = append(of.parts, l.urgent...)
		slices.SortStableFunc(of.parts, func(x, y int) int { return rank([]int{exec.Head}, x) - rank([]int{exec.Head}, y) })
	default:
		of.parts = slices.Clone(l.parts[:min(partsAtOnce, len(l.parts))])
	}
	l.urgent = nil
	l.parts = slices.DeleteFunc(l.parts, func(p int) bool { return slices.Contains(of.parts, p) })
	if len(l.parts) == 0 {
		a.rest = slices.Delete(a.rest, at, at+1)
	}
	return of, urgent, true
}

// has is called when all of a group has come.
func (a *asks) has(group int) {
	a.rest = slices.DeleteFunc(a.rest, func(l *lacking) bool { return l.group == group })
}
