// Package balance computes how evenly the key groups of a stage can be distributed over its tasks,
// without an engine: the keys, their weights, and the planners of package route decide it (Trilink,
// Table 3 and Figures 7 and 15).
package balance

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/serde"
)

// Case is a stage and its keys.
type Case struct {
	Tasks  int    `json:"tasks"`
	Groups int    `json:"key_groups"`
	Keys   int64  `json:"keys"`
	IDs    string `json:"key_ids"`     // sequential or prefix
	Of     string `json:"key_weights"` // uniform or zipf:S
	// Dispatch is the name of a planner, or modulo: the owners of hash for groups that keys are in by
	// their remainder.
	Dispatch string `json:"dispatch"`
	// Shares are the shares of the tasks, for the planner weight; nil: equal ones.
	Shares []float64 `json:"task_weights,omitempty"`
	// Slots is the number of slots, to which heavy keys and parts of key groups are routed where whole
	// groups are too coarse. hash and modulo do not use them.
	Slots int `json:"slots,omitempty"`
}

// Result is what a Case gives.
type Result struct {
	Case
	Degree float64 `json:"degree"`
	// Extra is by how much longer the fullest task takes than all would if they were even.
	Extra float64 `json:"extra"`
	// Moved is how many groups have another owner than in a new job.
	Moved int `json:"moved_groups"`
	// Placed is how many slots are used, Keys of them for single keys.
	Placed     int `json:"slots_used"`
	PlacedKeys int `json:"slots_of_keys"`
	// Hottest is how many tasks' worth of items the most frequent key has.
	Hottest float64 `json:"hottest_key"`
}

// heaviest is how many keys have a load that is known.
const heaviest = 4096

// whole is what the loads of all groups add up to.
const whole = 1e15

// Loads are the loads of the key groups, and the numbers of their keys.
type loads struct {
	items, keys []int64
	hottest     float64 // share of all
	// Of the sub-groups, and of the heaviest keys.
	itemsOf, keysOf []int64
	heavy           []route.KeyLoad
}

// Compute returns the result of each case. Cases in a row that differ only in the dispatch are
// cheaper.
func Compute(cases []Case) ([]Result, error) {
	var all []Result
	var of loads
	var last Case
	for _, c := range cases {
		base := c
		base.Dispatch, base.Shares, base.Tasks, base.Slots = "", nil, 0, 0
		if c.Dispatch == "modulo" {
			base.Dispatch = c.Dispatch
		}
		if all == nil || !same(base, last) {
			var err error
			if of, err = c.loads(); err != nil {
				return nil, err
			}
			last = base
		}
		r, err := c.result(&of)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func same(a, b Case) bool {
	return a.Groups == b.Groups && a.Keys == b.Keys && a.IDs == b.IDs && a.Of == b.Of && a.Dispatch == b.Dispatch
}

// loads distributes the keys over the groups.
func (c *Case) loads() (of loads, err error) {
	if c.Tasks < 1 || c.Groups < c.Tasks {
		return of, fmt.Errorf("%d tasks, %d key groups: each task needs one", c.Tasks, c.Groups)
	}
	if c.Slots < 0 || c.Groups+c.Slots > route.MaxGroups {
		return of, fmt.Errorf("%d key groups and %d slots: there are at most %d together", c.Groups, c.Slots, route.MaxGroups)
	}
	zipf, err := workload.ParseWeights(c.Of)
	if err != nil {
		return of, err
	}
	k := workload.KeyConfig{N: c.Keys, Zipf: zipf, Prefix: c.IDs == "prefix"}
	keys := workload.NewKeys(k)
	sum := 0.0
	for i := range c.Keys {
		sum += k.Weight(i)
	}
	of = loads{items: make([]int64, c.Groups), keys: make([]int64, c.Groups), hottest: k.Weight(0) / sum}
	of.itemsOf, of.keysOf = make([]int64, c.Groups*route.Parts), make([]int64, c.Groups*route.Parts)
	var enc []byte
	for i := range c.Keys { // the heaviest first
		id := keys.ID(i)
		g, sub := int(id%int64(c.Groups)), 0
		items := int64(k.Weight(i) / sum * whole)
		if c.Dispatch != "modulo" {
			enc = serde.AppendInt64(enc[:0], id)
			hash := exec.HashKey(enc)
			g, sub = exec.GroupOf(hash, c.Groups), exec.SubGroupOf(hash, c.Groups, route.Parts)
			if i < heaviest {
				of.heavy = append(of.heavy, route.KeyLoad{Key: string(enc), Load: items})
			}
		}
		of.keys[g]++
		of.items[g] += items
		of.keysOf[g*route.Parts+sub]++
		of.itemsOf[g*route.Parts+sub] += items
	}
	return of, nil
}

func (c *Case) result(of *loads) (Result, error) {
	name := c.Dispatch
	if name == "modulo" {
		name = "hash"
	}
	plan, err := route.ByName(name)
	if err != nil {
		return Result{}, err
	}
	st := &route.Stage{Owners: make([]int, c.Groups), Tasks: c.Tasks, Items: of.items, Keys: of.keys, Shares: c.Shares}
	st.Owners = route.Hash(st)
	owners := plan(st)
	r := Result{Case: *c, Moved: route.Moved(st.Owners, owners), Hottest: of.hottest * float64(c.Tasks)}
	by := route.Tasks(of.items, owners, c.Tasks)
	if c.Slots > 0 && name != "hash" {
		if by, err = c.divided(of, st, owners, &r); err != nil {
			return r, err
		}
	}
	r.Degree, r.Extra = route.Degree(by, c.Shares), route.Extra(by, c.Shares)
	return r, nil
}

// divided continues a plan with slots, and returns the items of each task.
func (c *Case) divided(of *loads, st *route.Stage, owners []int, r *Result) ([]int64, error) {
	table, err := route.NewTable(0, c.Groups, c.Slots, nil)
	if err != nil {
		return nil, err
	}
	st.Owners = route.Spread(st.Owners, c.Slots)
	load, shares, fine := of.items, c.Shares, route.Fine{Keys: of.heavy, Parts: of.itemsOf}
	switch c.Dispatch {
	case "least-key":
		load, shares, fine = of.keys, nil, route.Fine{Parts: of.keysOf}
	case "least-count":
		shares = nil
	}
	owners, places := route.Divide(&route.Cut{
		Table: table, Have: st.Owners, Owners: append(slices.Clone(owners), st.Owners[c.Groups:]...), Tasks: c.Tasks,
		Load: append(slices.Clone(load), make([]int64, c.Slots)...), Shares: shares, Fine: fine,
	})
	items := append(slices.Clone(of.items), make([]int64, c.Slots)...)
	for _, p := range places {
		n := of.load(p.Part, c.Groups)
		items[p.Slot] += n
		items[p.Home(c.Groups)] -= n
		r.Placed++
		if p.Single {
			r.PlacedKeys++
		}
	}
	r.Moved = route.Moved(st.Owners, owners)
	return route.Tasks(items, owners, c.Tasks), nil
}

// load returns the items of a part.
func (of *loads) load(p route.Part, groups int) int64 {
	if !p.Single {
		sum := int64(0)
		for i := range p.N {
			sum += of.itemsOf[p.Group*route.Parts+p.Sub+i]
		}
		return sum
	}
	return of.heavy[slices.IndexFunc(of.heavy, func(k route.KeyLoad) bool { return k.Key == p.Key })].Load
}
