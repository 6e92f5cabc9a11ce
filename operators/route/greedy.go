package route

import (
	"cmp"
	"slices"
)

// Target is the degree at which a plan is good enough: more moves would cost more than they gain.
const Target = 0.985

// aim is the degree that a plan goes for once owners have to move: loads are measured, so that what comes of a
// plan is a hundredth less, or two (leastGain).
const aim = 0.995

// clearly is by how much the degree of a plan from scratch must be above that of one that keeps what
// it can.
const clearly = 0.01

// Balance returns an owner in [0, tasks) for each group, such that the tasks' loads per share are as
// even as a greedy algorithm makes them, with few moves. load nil means that all groups are equal.
//
// It begins with the present owners and moves, from the fullest task to the emptiest one, the group
// that helps most, or exchanges two, until the degree is at least aim. That ends in a corner if
// the heavy groups lie badly. Then it begins again from nothing: the heaviest group first, each to the
// task that is emptiest with it.
func Balance(owners []int, tasks int, load []int64, shares []float64) []int {
	if load == nil {
		load = slices.Repeat([]int64{1}, len(owners))
	}
	kept := newPlan(owners, tasks, load, shares)
	have := -1.0 // without a task that leaves or has nothing, the present owners are a plan
	if !slices.Contains(kept.owners, -1) && !slices.Contains(kept.groups, 0) {
		if have = kept.degree(); have >= Target {
			return slices.Clone(owners)
		}
	}
	kept.place()
	kept.improve()
	if kept.degree() >= Target {
		return kept.owners
	}
	fresh := newPlan(slices.Repeat([]int{-1}, len(owners)), tasks, load, shares)
	fresh.place()
	if shares == nil {
		fresh.rename(owners)
	}
	fresh.improve()
	if fresh.degree() > max(kept.degree(), have)+clearly {
		return fresh.owners
	}
	if kept.degree() <= have { // shares may differ so much that a step lowers both
		return slices.Clone(owners)
	}
	return kept.owners
}

// plan is owners that are being made.
type plan struct {
	owners []int
	load   []int64
	shares []float64
	of     []int64 // load of each task
	groups []int   // number of groups of each task
}

// newPlan returns the plan in which groups of tasks that do not exist have no owner, -1.
func newPlan(owners []int, tasks int, load []int64, shares []float64) *plan {
	p := &plan{owners: slices.Clone(owners), load: load, shares: shares, of: make([]int64, tasks), groups: make([]int, tasks)}
	for g, owner := range p.owners {
		if owner < 0 || owner >= tasks {
			p.owners[g] = -1
			continue
		}
		p.of[owner] += load[g]
		p.groups[owner]++
	}
	return p
}

func (p *plan) degree() float64 { return Degree(p.of, p.shares) }

// per returns the load per share that a task has with a change of its load.
func (p *plan) per(task int, change int64) float64 {
	return perShare(p.of[task]+change, p.shares, task)
}

func (p *plan) move(g, to int) {
	if from := p.owners[g]; from >= 0 {
		p.of[from] -= p.load[g]
		p.groups[from]--
	}
	p.owners[g] = to
	p.of[to] += p.load[g]
	p.groups[to]++
}

// place gives the groups without an owner one, the heaviest first, and then each task a group.
func (p *plan) place() {
	var homeless []int
	for g, owner := range p.owners {
		if owner < 0 {
			homeless = append(homeless, g)
		}
	}
	slices.SortStableFunc(homeless, func(a, b int) int { return cmp.Compare(p.load[b], p.load[a]) })
	for _, g := range homeless {
		best := 0
		for i := range p.of {
			if c := cmp.Compare(p.per(i, p.load[g]), p.per(best, p.load[g])); c < 0 || c == 0 && p.groups[i] < p.groups[best] {
				best = i
			}
		}
		p.move(g, best)
	}
	p.fill()
}

// fill gives each task a group.
func (p *plan) fill() {
	for i := range p.groups {
		if p.groups[i] == 0 {
			p.move(p.spare(), i)
		}
	}
}

// spare returns the lightest group of the task that has most groups.
func (p *plan) spare() int {
	from := slices.Index(p.groups, slices.Max(p.groups))
	best := -1
	for g, owner := range p.owners {
		if owner == from && (best < 0 || p.load[g] < p.load[best]) {
			best = g
		}
	}
	return best
}

// rename numbers the tasks such that many groups keep their owners: the pair of an old and a new task
// with the most load in common first.
func (p *plan) rename(before []int) {
	n := len(p.of)
	type pair struct {
		old, now int
		load     int64
	}
	common := make([]pair, 0, n*n)
	for i := range n * n {
		common = append(common, pair{old: i / n, now: i % n})
	}
	for g, now := range p.owners {
		if old := before[g]; old >= 0 && old < n {
			common[old*n+now].load += p.load[g] + 1
		}
	}
	slices.SortStableFunc(common, func(a, b pair) int { return cmp.Compare(b.load, a.load) })
	name := slices.Repeat([]int{-1}, n)
	taken := make([]bool, n)
	for _, c := range common {
		if name[c.now] < 0 && !taken[c.old] {
			name[c.now], taken[c.old] = c.old, true
		}
	}
	of, groups := slices.Clone(p.of), slices.Clone(p.groups)
	for i, as := range name {
		p.of[as], p.groups[as] = of[i], groups[i]
	}
	for g, now := range p.owners {
		p.owners[g] = name[now]
	}
}

// improve moves and exchanges groups until the degree is at least aim, or nothing helps. Each step
// lowers the load of the fullest of two tasks, so it ends; the bound is for shares, which round.
func (p *plan) improve() {
	for range 4 * len(p.owners) {
		if p.degree() >= aim || !p.step() {
			return
		}
	}
}

// step makes the two tasks with the greatest and the least load more even; if that is impossible, the
// fullest with another one, or another one with the emptiest.
func (p *plan) step() bool {
	order := make([]int, len(p.of))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.per(a, 0), p.per(b, 0)) })
	full, empty := order[len(order)-1], order[0]
	for _, to := range order[:len(order)-1] {
		if p.even(full, to) {
			return true
		}
	}
	for i := len(order) - 2; i > 0; i-- {
		if p.even(order[i], empty) {
			return true
		}
	}
	return false
}

// even moves a group from a task to another one, or exchanges two, if that lowers the greater of
// their loads. It chooses what lowers it most; an exchange is two moves, and must lower it by more than
// twice as much.
func (p *plan) even(from, to int) bool {
	now := p.per(from, 0)
	worst := func(change int64) float64 { return max(p.per(from, -change), p.per(to, change)) }
	give, take, least := -1, -1, now
	var givers, takers []int
	for g, owner := range p.owners {
		switch owner {
		case from:
			givers = append(givers, g)
		case to:
			takers = append(takers, g)
		}
	}
	if len(givers) > 1 {
		for _, g := range givers {
			if w := worst(p.load[g]); p.load[g] > 0 && w < least {
				give, least = g, w
			}
		}
	}
	// By the loads of what the other task gives: for each group the best one to exchange it with.
	slices.SortStableFunc(takers, func(a, b int) int { return cmp.Compare(p.load[a], p.load[b]) })
	single := least
	enough := now - 2*(now-single)
	want := p.difference(from, to)
	for _, g := range givers {
		i, _ := slices.BinarySearchFunc(takers, p.load[g]-want, func(h int, l int64) int { return cmp.Compare(p.load[h], l) })
		for k := max(i-1, 0); k <= i && k < len(takers); k++ {
			h := takers[k]
			if w := worst(p.load[g] - p.load[h]); p.load[g] > p.load[h] && w < min(least, enough) {
				give, take, least = g, h, w
			}
		}
	}
	if give < 0 {
		return false
	}
	p.move(give, to)
	if take >= 0 {
		p.move(take, from)
	}
	return true
}

// difference returns how much load would have to move to make two tasks even.
func (p *plan) difference(from, to int) int64 {
	a, b := share(p.shares, from), share(p.shares, to)
	return int64((float64(p.of[from])*b - float64(p.of[to])*a) / (a + b))
}
