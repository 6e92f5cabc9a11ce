package route

import (
	"fmt"
	"math"
	"slices"

	"tailrace.dev/tailrace/operators/route/sketch"
)

// When says when a Core looks for a better plan; at most one of the first three is above 0, and without
// one it never does.
type When struct {
	Every int64   `json:"every_ms,omitempty"` // periodically
	Items int64   `json:"items,omitempty"`    // whenever the stage has processed so many
	Below float64 `json:"below,omitempty"`    // when the degree is lower
	// Quiet is the time in ms after a step in which there is no other; 0: as long as Every, at most
	// 10 s.
	Quiet int64 `json:"quiet_ms,omitempty"`
}

// off reports whether there is never a step.
func (w *When) off() bool { return w.Every == 0 && w.Items == 0 && w.Below == 0 }

// Sample is what the tasks of a stage have measured since the previous sample.
type Sample struct {
	// At is a time in ms since any moment; it rises.
	At int64
	// Items is the number of items of each key group that were processed since the previous sample,
	// Keys the number of keys in the state of each; nil: Keys are not known.
	Items, Keys []int64
	// Bytes is the size of the stage's state; 0: not known.
	Bytes int64
	// Owners is the owner of each group, one of Tasks tasks.
	Owners []int
	// Slots is how many of the groups, the last ones, are slots. Table is the table of the groups: parts of hash groups are
	// placed in slots; nil: they are not.
	Slots int
	Table *Table
	// Fine is what was sampled of the items of the hash groups.
	Fine  sketch.Sample
	Tasks int
	// Shares are as in Stage.
	Shares []float64
	// Busy: key groups are moving or about to, or a savepoint is made.
	Busy bool
}

// Decision is what a Core makes of a sample.
type Decision struct {
	// Owners are the new owners; nil: they stay as they are, for the reason Why.
	Owners []int
	Why    string
	// Places are those of the new table, nil: the table stays as it is. Placed is how many of them are new, Back how many
	// parts return to their hash groups.
	Places       []Place
	Placed, Back int
	// Degree and Extra are measured over the newest 5 s; Planned is what the degree is to become, by
	// the planner's load. A Core for keys has those of the keys in state.
	Degree, Extra, Planned float64
	// ByTask is the number of items of each task in the newest 5 s, or of its keys. Measured says that there are enough
	// of them for a degree that says something.
	ByTask   []int64
	Measured bool
}

// The numbers of the rules, times in ms.
const (
	window     = 5000
	evidence   = 3    // samples in a row below the threshold
	mostGain   = 0.05 // a difference of the degrees that is worth a step, if little is known (leastGain)
	fewestGain = 0.01 // and however much is known
	quiet      = 10_000
	mostQuiet  = 600_000
	horizon    = 30.0 // s for which a step must pay
	bandwidth  = 100e6
	enoughLoad = 1000 // items in the window, or keys; of fewer the degree says nothing
)

// Core decides when the key groups of one stage are distributed anew.
type Core struct {
	when    When
	plan    Planner
	keys    bool // the load is the keys in state
	history History
	newest  []Sample // of the window
	low     int      // samples in a row below the threshold
	began   int64    // when the present period began
	items   int64    // since then
	silent  int64    // before it there is no step
	quiet   int64    // after the newest step
	former  []int    // owners before the newest step
	had     []Place  // places before the newest step
	placed  []Place  // of the newest sample's table
	some    bool
}

// NewCore returns the core of a stage. It knows nothing of the past.
func NewCore(w When, p Planner) *Core {
	if w.Quiet == 0 {
		if w.Quiet = quiet; w.Every > 0 {
			w.Quiet = min(quiet, w.Every)
		}
	}
	return &Core{when: w, plan: p, quiet: w.Quiet}
}

// ForKeys makes a core that does not know anything yet one for keys: the loads are the keys in state, as they are now.
func (c *Core) ForKeys() *Core {
	c.keys = true
	return c
}

// loads returns the load of each key group in the newest 5 s.
func (c *Core) loads(s *Sample) []int64 {
	items := make([]int64, len(s.Owners))
	if c.keys {
		copy(items, s.Keys)
		return items
	}
	for i := range c.newest {
		for g, n := range c.newest[i].Items {
			items[g] += n
		}
	}
	return items
}

// Load returns the load by which the Core plans, as of the newest sample; nil: not enough is known.
func (c *Core) Load() []int64 {
	n := len(c.newest)
	if n == 0 {
		return nil
	}
	load, least := c.history.Load(), int64(enoughLoad*one)
	if c.keys {
		load, least = c.newest[n-1].Keys, enoughLoad
	}
	var all int64
	for _, l := range load {
		all += l
	}
	if all < least {
		return nil
	}
	return load
}

// Next takes a sample and decides.
func (c *Core) Next(s *Sample) Decision {
	c.take(s)
	now := c.loads(s)
	by := Tasks(now, s.Owners, s.Tasks)
	d := Decision{ByTask: by, Degree: Degree(by, s.Shares), Extra: Extra(by, s.Shares)}
	var all int64
	for _, n := range by {
		all += n
	}
	if d.Measured = all >= enoughLoad; !d.Measured || d.Degree >= c.when.Below {
		c.low = 0
	} else {
		c.low++
	}
	if d.Why = c.waits(s, all); d.Why != "" {
		return d
	}
	c.began, c.items = s.At, 0
	load := now
	if !c.keys {
		load = c.history.Load()
	}
	p := NewPlan(c.plan, s, load)
	owners, places := p.Owners, p.Places
	have := Degree(Tasks(load, s.Owners, s.Tasks), s.Shares)
	d.Planned = Degree(p.ByTask, s.Shares)
	moved := Moved(s.Owners, owners)
	switch {
	case moved == 0 && places == nil:
		d.Why = "the planner has nothing better"
		return d
	case d.Planned < have+c.leastGain(&d, have, load, s.Tasks):
		d.Why = fmt.Sprintf("a degree of %.2f instead of %.2f is not worth moving %d key groups", d.Planned, have, moved)
		return d
	}
	if took := float64(s.Bytes) * float64(moved) / float64(len(owners)) / bandwidth; took >= horizon*d.Extra && took > 0 && !c.keys {
		d.Why = fmt.Sprintf("moving %d key groups takes %.1f s, and gains %.1f s in half a minute", moved, took, horizon*d.Extra)
		return d
	}
	c.stepped(s, owners, places)
	if d.Owners, d.Places = owners, places; places != nil {
		without, with := s.Table.Towards(places)
		d.Placed, d.Back = len(with), len(without)
	}
	return d
}

// leastGain returns the least difference of the degrees of two plans that is worth a step. Keys do not come and go by chance as
// items do.
func (c *Core) leastGain(d *Decision, have float64, load []int64, tasks int) float64 {
	if c.keys {
		return mostGain
	}
	return leastGain(d, have, load, tasks)
}

// leastGain returns the least difference of the degrees of two plans that is worth a step, have being the
// degree of the present owners by the planner's load. Loads are counts of items that come at random: with n
// items, tasks of equal loads count n/tasks ± √(n/tasks) each, so the degree of these counts is below 1 by as many
// times √(tasks/n) as normal values, one for each task, lie apart. A step for less than three standard deviations
// above the mean of that would follow chance; and while the newest items say otherwise than all, so that the
// load is changing, one for little would be for nothing.
func leastGain(d *Decision, have float64, load []int64, tasks int) float64 {
	if math.Abs(d.Degree-have) >= mostGain {
		return mostGain
	}
	n := 0.0
	for _, l := range load {
		n += float64(l) / one
	}
	chance := (apart(tasks) + 3*apartBy) * math.Sqrt(float64(tasks)/max(n, 1))
	return min(max(chance, fewestGain), mostGain)
}

// apartBy is the standard deviation of the range of some normal values of variance 1, at most: three have the greatest.
const apartBy = 0.89

// apart returns the mean of the range of n normal values of variance 1: of the greatest less the least. It is the integral of the
// probability that a number lies between the two.
func apart(n int) float64 {
	const far, step = 8, 1.0 / 32
	sum := 0.0
	for x := -far + step/2; x < far; x += step {
		below := math.Erfc(-x/math.Sqrt2) / 2
		sum += 1 - math.Pow(below, float64(n)) - math.Pow(1-below, float64(n))
	}
	return sum * step
}

// take keeps a sample. One with other owners begins the window again, and one with another table everything that is known
// of loads: its own items went by both tables. One with the same places is the same table, whatever its epoch: the tables of a
// job have one together.
func (c *Core) take(s *Sample) {
	if s.Table != nil && c.some && !slices.Equal(s.Table.Places(), c.placed) {
		again := *s
		again.Items = make([]int64, len(s.Items))
		s = &again
		c.newest, c.low, c.history = c.newest[:0], 0, History{}
	}
	if s.Table != nil {
		c.placed = s.Table.Places()
	}
	if !c.some {
		c.began, c.some = s.At, true
	}
	if n := len(c.newest); n > 0 && !slices.Equal(c.newest[n-1].Owners, s.Owners) {
		if c.newest[n-1].Tasks != s.Tasks {
			c.former = nil
		}
		c.newest, c.low = c.newest[:0], 0
	}
	c.newest = append(c.newest, *s)
	for len(c.newest) > 1 && c.newest[0].At <= s.At-window {
		c.newest = slices.Delete(c.newest, 0, 1)
	}
	c.history.Add(s.At, s.Items)
	for _, n := range s.Items {
		c.items += n
	}
}

// waits returns why it is not the time to look for a better plan, empty if it is. all is the number of
// items in the window, or of keys.
func (c *Core) waits(s *Sample, all int64) string {
	switch {
	case c.when.off():
		return "balancing is off"
	case s.Busy:
		return "key groups are moving, or a savepoint is made"
	case s.Tasks < 2:
		return "the stage has one task"
	case s.At < c.silent:
		return fmt.Sprintf("no step for %d s, to see the effect of the newest", (c.silent-s.At+999)/1000)
	case c.keys && s.Keys == nil:
		return "the keys of some key groups were not counted yet"
	case all < enoughLoad && c.keys:
		return "too few keys"
	case all < enoughLoad:
		return "too few items"
	case c.when.Every > 0 && s.At-c.began < c.when.Every:
		return "its time has not come"
	case c.when.Items > 0 && c.items < c.when.Items:
		return fmt.Sprintf("%d items to go", c.when.Items-c.items)
	case c.when.Below > 0 && c.low == 0:
		return "the tasks' loads are even enough"
	case c.when.Below > 0 && c.low < evidence:
		return "too few samples"
	}
	return ""
}

// stepped notes that the owners are about to change. If most of what the newest step moved goes back
// where it came from, the load changes faster than it can be followed.
func (c *Core) stepped(s *Sample, owners []int, places []Place) {
	did, back := 0, 0
	if c.former != nil {
		for g, was := range c.former {
			if s.Owners[g] == was {
				continue
			}
			if did++; owners[g] == was {
				back++
			}
		}
	}
	if s.Table != nil {
		placed := s.Table.Places()
		for _, p := range placed {
			if slices.Contains(c.had, p) || c.former == nil {
				continue
			}
			if did++; places != nil && !slices.Contains(places, p) {
				back++
			}
		}
		c.had = placed
	}
	if 2*back > did {
		c.quiet = min(2*c.quiet, mostQuiet)
	} else {
		c.quiet = c.when.Quiet
	}
	c.silent, c.former, c.low = s.At+c.quiet, slices.Clone(s.Owners), 0
}
