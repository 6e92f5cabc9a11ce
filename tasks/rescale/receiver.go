package rescale

import (
	"maps"
	"slices"
)

// receive handles what the plan at the position gives to the task.
func (t *Task) receive(p *Plan, watermark int64) (effects []Effect) {
	for i := range p.Moves {
		m := &p.Moves[i]
		if m.To != t.index {
			continue
		}
		for _, g := range m.Groups {
			effects = append(effects, t.wait(g, pending, p, m, watermark)...)
		}
	}
	return effects
}

// Saw passes a marker of a giver that the task follows, in the order of the log. r is the release
// that it contains, nil if it contains none.
func (t *Task) Saw(giver int, m *Marker, r *Release) (effects []Effect) {
	if t.entry != nil {
		return t.saw(giver, m, r)
	}
	if t.outside != nil {
		t.sawReceiver(giver, m)
	}
	if r != nil {
		effects = t.takeOver(r)
	}
	if m.Ended && !m.Left {
		// The giver has ended before it reached the plan, as has the whole stage: what it did not
		// release ends with it.
		for _, g := range slices.Sorted(maps.Keys(t.source)) {
			if t.source[g].giver == giver && t.state[g] == pending {
				t.drop(g)
			}
		}
	}
	return append(effects, t.unfollow(giver)...)
}

// drop ends the wait for a group that does not come.
func (t *Task) drop(group int) {
	t.set(group, other)
	t.from[group] = never
	delete(t.source, group)
	delete(t.due, group)
}

// takeOver handles a release: the task owns what was pending, from its next commit on, which follows
// at once.
func (t *Task) takeOver(r *Release) (effects []Effect) {
	var took []int
	for i, g := range r.Groups {
		s, waits := t.source[g]
		if !waits || s.plan != r.Plan || s.giver != r.From {
			continue
		}
		switch t.state[g] {
		case pending:
			t.miss(g, s, r, i)
			took = append(took, g)
		case unplaced:
			t.set(g, mine)
			t.from[g] = max(t.from[g], r.Position)
			delete(t.source, g)
		}
	}
	if len(took) == 0 {
		return nil
	}
	if r.Low < r.Position {
		// Before the commit: an instance that starts from it reads from the inbox's low.
		effects = append(effects, Effect{Do: Back, Back: &Readback{r.Low, r.Position, took}})
	}
	return append(effects, Effect{Do: Commit}, Effect{Do: Take, From: r.From, At: r.LSN, Groups: took})
}

// miss sets a group to missing, by the i-th group of a release. Event time may come close to the
// group's first timer.
func (t *Task) miss(group int, s source, r *Release, i int) {
	t.set(group, missing)
	t.from[group] = r.Position
	if r.Bounds != nil {
		s.cap = max(s.cap, r.Bounds[i]-1)
	}
	t.source[group] = s
}

// Arrived tells that the task has the state of groups that an effect Take named, timers included.
// Event time may advance; then the task is at a clean point.
func (t *Task) Arrived(groups []int) {
	for _, g := range groups {
		if t.state[g] == missing {
			t.set(g, mine)
			delete(t.source, g)
		}
	}
}

// entry is a newcomer before it starts: what it waits for.
type entry struct {
	plan     *Plan
	waits    map[int]int // by group: the giver that has not released it, and has not ended
	releases []Release
}

func (e *entry) needs(giver int) bool {
	for _, from := range e.waits {
		if from == giver {
			return true
		}
	}
	return false
}

// enter handles a plan that may be the first one that gives groups to a newcomer.
func (t *Task) enter(p *Plan) (effects []Effect) {
	e := t.entry
	if e.plan != nil {
		return nil
	}
	for i := range p.Moves {
		if m := &p.Moves[i]; m.To == t.index {
			if e.plan == nil {
				k := *p
				e.plan, e.waits = &k, map[int]int{}
			}
			for _, g := range m.Groups {
				e.waits[g] = m.From
			}
			effects = append(effects, t.follow(m.From, p.LSN)...)
		}
	}
	return effects
}

// saw is Saw of a newcomer that has not started.
func (t *Task) saw(giver int, m *Marker, r *Release) (effects []Effect) {
	e := t.entry
	if r != nil && r.Plan == e.plan.Number {
		k := *r
		k.Groups, k.Bounds = nil, nil
		for i, g := range r.Groups {
			if from, waits := e.waits[g]; waits && from == giver {
				delete(e.waits, g)
				k.Groups = append(k.Groups, g)
				if r.Bounds != nil {
					k.Bounds = append(k.Bounds, r.Bounds[i])
				}
			}
		}
		if len(k.Groups) > 0 {
			e.releases = append(e.releases, k)
		}
	}
	if m.Ended && !m.Left {
		for g, from := range e.waits {
			if from == giver {
				delete(e.waits, g) // it has ended with its giver
			}
		}
	}
	effects = t.unfollow(giver)
	if len(e.waits) > 0 {
		return effects
	}
	return append(effects, t.start(e)...)
}

// start begins to process the input: at the lowest position of all releases, and as the giver that
// was there. A group counts from the position of its own release on.
func (t *Task) start(e *entry) []Effect {
	t.entry, t.plan = nil, e.plan.Number
	if len(e.releases) == 0 {
		return []Effect{{Do: End}}
	}
	s := Start{Position: never, Low: never, Watermark: maxTime}
	takes := make([]Effect, 0, len(e.releases))
	for i := range e.releases {
		r := &e.releases[i]
		if r.Position < s.Position {
			s.Position, s.Release = r.Position, r.LSN
		}
		s.Low, s.Watermark = min(s.Low, r.Low), min(s.Watermark, r.Watermark)
	}
	for i := range e.releases {
		r := &e.releases[i]
		for k, g := range r.Groups {
			t.miss(g, source{r.Plan, r.From, e.plan.LSN, s.Watermark}, r, k)
		}
		takes = append(takes, Effect{Do: Take, From: r.From, At: r.LSN, Groups: r.Groups})
	}
	return append([]Effect{{Do: Enter, Start: &s}, {Do: Commit}}, takes...)
}
