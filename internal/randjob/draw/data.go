package draw

import (
	"cmp"
	"slices"
	"strings"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// keys are those of rows: what has broken programs before, and some ordinary ones.
var keys = []string{
	"a", "b", "c", "d", "e", "f", "", "\x00", "\xff\xfe", "日本語", "Ω≈ç√", "a b c", strings.Repeat("long", 60), "a\x00", "A", "\n", "\t\"",
}

// sources draws the sources and what they hold.
func (d *drawing) sources() {
	n := pick(d, 1, 2, 2, 3)
	events := pick(d, 0, 3, 20, 40, 60, 100, 200)
	if d.big {
		events = pick(d, 20, 60, 300)
	}
	// How long all of it takes in event time.
	span := d.unit * pick(d, int64(10), 30, 100, 300)
	d.end = d.origin + span
	if d.j.Hold != 0 {
		d.j.Hold = d.origin + d.unit*(span/d.unit/2) + 1
	}
	alphabet := d.alphabet()
	idle := false
	for i := range n {
		s := &model.SourceData{}
		parts := pick(d, 1, 1, 2, 3, 4)
		of := events
		if i > 0 {
			of = pick(d, events, events/2, 3)
		}
		if i == n-1 && (n > 1 && d.chance(50) || d.needsOrder()) {
			d.ordered(s, alphabet, parts, of)
		} else {
			d.disordered(s, alphabet, parts, of)
		}
		for p := range s.Parts {
			part := &s.Parts[p]
			part.Batch = pick(d, 0, 0, 1, 3, 500)
			part.Every = pick(d, 0, 0, 0, 1, 1, 3)
			if d.j.Hold != 0 && len(s.Parts) > 1 && p > 0 && d.chance(50) {
				part.Idle, idle = true, true
			}
		}
		d.j.Nodes = append(d.j.Nodes, model.Node{Op: model.Source, Source: s, Serde: d.serde()})
	}
	if !idle {
		d.j.Hold = 0
	}
	d.hold()
	nodes := d.j.Nodes
	d.j.Nodes = nil
	for _, n := range nodes {
		d.add(n)
	}
}

func (d *drawing) needsOrder() bool {
	return slices.Contains([]model.Op{model.AsTable, model.AsTableOf, model.JoinTable, model.LeftJoinTable, model.Forward}, d.theme)
}

// alphabet draws the keys of a job: few, so that they meet.
func (d *drawing) alphabet() []string {
	n := pick(d, 1, 2, 3, 5, 10)
	var of []string
	for range n {
		of = append(of, keys[d.rng.IntN(len(keys))])
	}
	if d.chance(30) {
		for range 2 * n { // a hot one
			of = append(of, of[0])
		}
	}
	return of
}

func (d *drawing) event(alphabet []string, t int64) model.Event {
	e := model.Event{T: t, K: pick(d, alphabet...), N: int64(d.rng.IntN(40)) - 5}
	switch {
	case d.big:
		e.Size = pick(d, 0, 100, 100_000, 100_000, 1<<20)
	case d.chance(5):
		e.Size = d.rng.IntN(3000)
	case d.chance(50):
		e.Size = d.rng.IntN(20)
	}
	return e
}

// disordered draws items in any order up to some disorder, which the source's delay covers,
// or does not.
func (d *drawing) disordered(s *model.SourceData, alphabet []string, parts, events int) {
	s.Parts = make([]model.Part, parts)
	disorder := d.unit * int64(pick(d, 0, 1, 3, 6, 10))
	step := max((d.end-d.origin)/int64(events+1), 1)
	highs := make([]int64, parts)
	late := int64(0)
	type at struct {
		k string
		t int64
	}
	distinct, seen := needsDistinct(d.theme) && d.chance(85) || d.chance(20), map[at]bool{}
	for i := range events {
		t := d.origin + int64(i)*step
		if disorder > 0 {
			t -= d.rng.Int64N(disorder + 1)
		}
		if d.chance(80) {
			t = t / d.unit * d.unit
		}
		e := d.event(alphabet, t)
		for distinct && seen[at{e.K, e.T}] {
			e.T += d.unit
		}
		seen[at{e.K, e.T}], t = true, e.T
		p := d.rng.IntN(parts)
		if d.chance(40) {
			p = 0
		}
		part := &s.Parts[p]
		if len(part.Events) > 0 {
			late = max(late, highs[p]-t)
			highs[p] = max(highs[p], t)
		} else {
			highs[p] = t
		}
		part.Events = append(part.Events, e)
	}
	s.Delay = late
	short := 25
	if d.theme == model.WithLate || d.theme == model.WindowGroups {
		short = 75
	}
	if late > 0 && !distinct && d.chance(short) {
		s.Delay = d.rng.Int64N(late)
	} else if d.chance(30) {
		s.Delay += d.steps(3)
	}
}

// ordered draws items so that each K is of one partition and its times rise there.
func (d *drawing) ordered(s *model.SourceData, alphabet []string, parts, events int) {
	s.Parts = make([]model.Part, parts)
	newest := map[string]int64{}
	step := max((d.end-d.origin)/int64(events+1), 1)
	for i := range events {
		e := d.event(alphabet, (d.origin+int64(i)*step)/d.unit*d.unit)
		if t, ok := newest[e.K]; ok && e.T <= t {
			e.T = t + d.unit
		}
		newest[e.K] = e.T
		p := slices.Index(alphabet, e.K) % parts
		s.Parts[p].Events = append(s.Parts[p].Events, e)
	}
	for p := range s.Parts {
		high := int64(-1 << 62)
		for _, e := range s.Parts[p].Events {
			if high > -1<<62 {
				s.Delay = max(s.Delay, high-e.T)
			}
			high = max(high, e.T)
		}
	}
}

// hold makes the items of each partition those before the job's hold, then the others. What
// an idle partition has behind it is later than all else: time has gone on without it.
func (d *drawing) hold() {
	if d.j.Hold == 0 {
		return
	}
	high, left := d.end, true
	each := func(f func(part *model.Part)) {
		for i := range d.j.Nodes {
			for p := range d.j.Nodes[i].Source.Parts {
				f(&d.j.Nodes[i].Source.Parts[p])
			}
		}
	}
	each(func(part *model.Part) {
		for _, e := range part.Events {
			high = max(high, e.T)
		}
	})
	each(func(part *model.Part) {
		slices.SortStableFunc(part.Events, func(a, b model.Event) int {
			side := func(e model.Event) int {
				if e.T >= d.j.Hold {
					return 1
				}
				return 0
			}
			return cmp.Compare(side(a), side(b))
		})
		if !part.Idle {
			return
		}
		at := slices.IndexFunc(part.Events, func(e model.Event) bool { return e.T >= d.j.Hold })
		if at < 0 {
			return
		}
		if !left { // of several, each would be late for the others
			part.Events = part.Events[:at]
			return
		}
		left = false
		by := (high-part.Events[at].T)/d.unit*d.unit + 20*d.unit
		for i := range part.Events[at:] {
			part.Events[at+i].T += by
		}
	})
}
