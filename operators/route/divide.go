package route

import (
	"cmp"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// Fine is what is known of the loads within hash groups, in the unit of the groups' loads.
type Fine struct {
	// Keys are the most frequent keys, the placed ones without: those of the greatest loads, in any order. One that is no
	// heavier than a sixteenth of its group is not placed alone.
	Keys []KeyLoad
	// Parts is the load of each sub-group of each hash group, at group·Parts + sub-group, Keys included,
	// without what is placed; nil: what Keys leave of a group is spread evenly.
	Parts []int64
}

// KeyLoad is the load of one key.
type KeyLoad struct {
	Key  string
	Load int64
}

const (
	// cold is the part of a task's mean load below which a placed part goes back to its hash group.
	cold = 0.001
	// worth is the part of a task's mean load by which a slot must lower the greater load of two tasks.
	worth = 0.001
)

// Cut is what Divide divides: a plan of owners, and loads. Slices by key group have the hash groups of
// the table, then its slots.
type Cut struct {
	Table *Table
	// Have are the present owners, Owners those that a Planner has made of them.
	Have, Owners []int
	Tasks        int
	Load         []int64
	Shares       []float64
	Fine         Fine
}

// Spread returns the owners with those of some slots behind them, which the tasks of the groups have
// in equal numbers: most tasks have a free slot then.
func Spread(owners []int, slots int) []int {
	all := slices.Clone(owners)
	for i := range slots {
		all = append(all, owners[i*len(owners)/slots])
	}
	return all
}

// Divide continues a plan of owners where whole groups are too coarse: if the degree is below
// Target, then while it is below aim and there is a free slot, it places a part of the fullest task in a slot of another one, or a
// heavy key of the fullest task in a slot of its own, so that the rest of its group can move. What has
// become cold goes back to its hash group; so do the lightest parts, if all slots are used and others in them gain 0.01 of degree.
//
// It returns owners and places. If the slots gain less than 0.01 of degree, no part is placed that was
// not before.
func Divide(cut *Cut) ([]int, []Place) {
	c := divide(cut)
	return c.owners, c.places
}

// divide is Divide, with the loads that the tasks have by it.
func divide(cut *Cut) *cutter {
	best := divideWithout(cut, 0)
	// The slots may have parts that were heavier once. Without the lightest of them there is room for what is heavy now.
	for n := 1; len(best.free) == 0 && best.degree() < Target && n < 2*len(cut.Table.places); n *= 2 {
		if c := divideWithout(cut, n); c.degree() >= best.degree()+clearly {
			best = c
		}
	}
	return best
}

// divideWithout is divide when the n lightest parts go back to their hash groups.
func divideWithout(cut *Cut, n int) *cutter {
	c := newCutter(cut)
	c.takeBack(n)
	whole := c.clone()
	if c.degree() < Target {
		c.improve()
	}
	if c.degree() >= whole.degree() { // shares may differ so much that a step lowers it
		whole = c
	}
	for enough := c.degree() >= Target; !enough && len(c.free) > 0 && c.degree() < aim; {
		next := c.better()
		if next == nil {
			break
		}
		c = next
	}
	if c.prune(); c.degree() < whole.degree()+clearly {
		c = whole
	}
	c.rest(cut.Owners)
	return c
}

// cutter is a plan in which hash groups are cut.
type cutter struct {
	*plan
	table  *Table
	before []int // the present owners
	places []Place
	free   []int // slots
	mean   float64
	// parts are the loads of the sub-groups; those that are placed, or have a placed key, are taken.
	parts []int64
	taken []bool
	keys  []key // those that are not placed, the heaviest first
}

type key struct {
	Part
	group, sub int
	load       int64
}

func heavier(a, b key) int { return cmp.Or(cmp.Compare(b.load, a.load), a.compare(b.Part)) }

func newCutter(cut *Cut) *cutter {
	table := cut.Table
	c := &cutter{
		plan: newPlan(cut.Owners, cut.Tasks, slices.Clone(cut.Load), cut.Shares), table: table, before: cut.Have, places: slices.Clone(table.places),
		parts: make([]int64, table.Groups*Parts), taken: make([]bool, table.Groups*Parts),
	}
	for slot := table.Groups; slot < table.Groups+table.Slots; slot++ {
		if _, ok := table.At(slot); !ok {
			c.release(slot)
		}
	}
	left := slices.Clone(cut.Load[:table.Groups])
	var small []key // that count with their sub-groups only
	for _, k := range cut.Fine.Keys {
		p := Single([]byte(k.Key))
		if table.Group(hashOf(k.Key), []byte(k.Key)) >= table.Groups {
			continue // its load is that of the slot
		}
		sub := p.sub(table.Groups)
		n := min(k.Load, left[sub/Parts])
		left[sub/Parts] -= n
		if n*Parts <= cut.Load[sub/Parts] {
			small = append(small, key{p, sub / Parts, sub, n})
			continue
		}
		c.keys = append(c.keys, key{p, sub / Parts, sub, n})
	}
	slices.SortStableFunc(c.keys, heavier)
	if cut.Fine.Parts != nil {
		copy(c.parts, cut.Fine.Parts)
	} else {
		for i := range c.parts {
			c.parts[i] = left[i/Parts] / Parts
		}
		for _, k := range slices.Concat(c.keys, small) {
			c.parts[k.sub] += k.load
		}
	}
	for _, p := range c.places {
		c.take(p.Part)
	}
	for _, l := range cut.Load {
		c.mean += float64(l) / float64(cut.Tasks)
	}
	return c
}

func (c *cutter) clone() *cutter {
	n := *c
	p := *c.plan
	p.owners, p.load, p.of, p.groups = slices.Clone(p.owners), slices.Clone(p.load), slices.Clone(p.of), slices.Clone(p.groups)
	n.plan = &p
	n.places, n.free, n.parts, n.taken, n.keys = slices.Clone(c.places), slices.Clone(c.free), slices.Clone(c.parts), slices.Clone(c.taken), slices.Clone(c.keys)
	return &n
}

// takeBack returns the cold parts to their hash groups, and the n lightest ones.
func (c *cutter) takeBack(n int) {
	slices.SortStableFunc(c.places, func(a, b Place) int { return cmp.Compare(c.load[a.Slot], c.load[b.Slot]) })
	for n < len(c.places) && float64(c.load[c.places[n].Slot]) < cold*c.mean {
		n++
	}
	back := c.places[:min(n, len(c.places))]
	c.places = slices.Clone(c.places[len(back):])
	for _, p := range back {
		c.open(p, c.load[p.Slot])
		c.back(p)
	}
	slices.SortFunc(c.places, func(a, b Place) int { return cmp.Compare(a.Slot, b.Slot) })
	slices.Sort(c.free)
	c.fill()
}

// open gives the sub-groups of a part what goes back to them: they, or the key, can be placed again.
func (c *cutter) open(p Place, load int64) {
	first, n := p.sub(c.table.Groups), max(p.N, 1)
	for sub := first; sub < first+n; sub++ {
		c.parts[sub] += load / int64(n)
		c.taken[sub] = slices.ContainsFunc(c.places, func(q Place) bool {
			from := q.sub(c.table.Groups)
			return from <= sub && sub < from+max(q.N, 1)
		})
	}
	if home := p.Home(c.table.Groups); p.Single && load*Parts > c.load[home]+load {
		c.keys = append(c.keys, key{p.Part, home, first, load})
		slices.SortStableFunc(c.keys, heavier)
	}
}

// release makes a slot free: until it is used, it is no task's group.
func (c *cutter) release(slot int) {
	c.groups[c.owners[slot]]--
	c.owners[slot] = -1
	c.free = append(c.free, slot)
}

// back gives the load of a placed part to its hash group.
func (c *cutter) back(p Place) {
	home, n := p.Home(c.table.Groups), c.load[p.Slot]
	c.of[c.owners[p.Slot]] -= n
	c.of[c.owners[home]] += n
	c.load[p.Slot], c.load[home] = 0, c.load[home]+n
	c.release(p.Slot)
}

// put places a part in a free slot, owned by a task.
func (c *cutter) put(p Part, load int64, to int) {
	home := p.Home(c.table.Groups)
	// A slot of the group's owner, if possible: then nothing moves before the table changes.
	i := max(0, slices.IndexFunc(c.free, func(slot int) bool { return c.before[slot] == c.before[home] }))
	slot := c.free[i]
	c.free = slices.Delete(c.free, i, i+1)
	c.of[c.owners[home]] -= load
	c.load[home] -= load
	c.load[slot] = load
	c.move(slot, to)
	c.places = append(c.places, Place{p, slot})
	if p.Single {
		c.parts[p.sub(c.table.Groups)] -= load
	}
	c.take(p)
}

// take notes that a part is placed: its sub-groups cannot be, nor can the keys in it.
func (c *cutter) take(p Part) {
	first := p.sub(c.table.Groups)
	for i := range max(p.N, 1) {
		c.taken[first+i] = true
	}
	c.keys = slices.DeleteFunc(c.keys, func(k key) bool { return k.Part == p || first <= k.sub && k.sub < first+p.N })
}

// better returns the best of the plans with one slot more, nil if none is worth it.
func (c *cutter) better() *cutter {
	order := make([]int, len(c.of))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.per(b, 0), c.per(a, 0)) })
	empty := order[len(order)-1]
	var best *cutter
	for _, from := range order[:len(order)-1] {
		if p, n, ok := c.part(from, empty); ok {
			best = c.clone()
			best.put(p, n, empty)
			best.improve()
			break
		}
	}
	full := order[0]
	for _, k := range c.keys {
		if c.owners[k.group] != full || c.load[k.group] == k.load {
			continue
		}
		alone := c.clone()
		alone.put(k.Part, k.load, full)
		alone.improve()
		if alone.most() < c.most()-worth*c.mean && (best == nil || alone.degree() > best.degree()) {
			best = alone
		}
		break
	}
	return best
}

func (c *cutter) most() float64 {
	most := 0.0
	for i := range c.of {
		most = max(most, c.per(i, 0))
	}
	return most
}

// part returns the part of a task's hash groups that lowers the greater load of two tasks most, if the
// other one gets it.
func (c *cutter) part(from, to int) (best Part, load int64, ok bool) {
	least := c.per(from, 0) - worth*c.mean
	try := func(p Part, n int64) {
		if w := max(c.per(from, -n), c.per(to, n)); n > 0 && w < least {
			best, load, ok, least = p, n, true, w
		}
	}
	for g, owner := range c.owners[:c.table.Groups] {
		if owner != from {
			continue
		}
		for sub := range Parts {
			sum := int64(0)
			for n := 1; n < Parts && sub+n <= Parts && !c.taken[g*Parts+sub+n-1]; n++ {
				sum += c.parts[g*Parts+sub+n-1]
				try(Part{Group: g, Sub: sub, N: n}, sum)
			}
		}
	}
	for _, k := range c.keys {
		if c.owners[k.group] == from {
			try(k.Part, k.load)
		}
	}
	return best, load, ok
}

// prune takes back what was placed and stays with the owner of its hash group.
func (c *cutter) prune() {
	c.places = slices.DeleteFunc(c.places, func(p Place) bool {
		if slices.Contains(c.table.places, p) || c.owners[p.Slot] != c.owners[p.Home(c.table.Groups)] {
			return false
		}
		c.back(p)
		return true
	})
}

// rest leaves empty slots where they are, or where the plan has them if their task leaves.
func (c *cutter) rest(planned []int) {
	for _, slot := range c.free {
		if c.owners[slot] = c.before[slot]; c.owners[slot] < 0 || c.owners[slot] >= len(c.of) {
			c.owners[slot] = planned[slot]
		}
	}
}

func hashOf(key string) uint64 { return exec.HashKey([]byte(key)) }
