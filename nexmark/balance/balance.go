// Package balance computes how evenly the key groups of a stage can be distributed over its tasks,
// without an engine: the keys, their weights, and the planners of package route decide it (Trilink,
// Table 3 and Figures 7 and 15).
package balance

import (
	"fmt"

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
}

// Result is what a Case gives.
type Result struct {
	Case
	Degree float64 `json:"degree"`
	// Extra is by how much longer the fullest task takes than all would if they were even.
	Extra float64 `json:"extra"`
	// Moved is how many groups have another owner than in a new job.
	Moved int `json:"moved_groups"`
	// Hottest is how many tasks' worth of items the most frequent key has.
	Hottest float64 `json:"hottest_key"`
}

// whole is what the loads of all groups add up to.
const whole = 1e15

// Loads are the loads of the key groups, and the numbers of their keys.
type loads struct {
	items, keys []int64
	hottest     float64 // share of all
}

// Compute returns the result of each case. Cases in a row that differ only in the dispatch are
// cheaper.
func Compute(cases []Case) ([]Result, error) {
	var all []Result
	var of loads
	var last Case
	for _, c := range cases {
		base := c
		base.Dispatch, base.Shares, base.Tasks = "", nil, 0
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
	var enc []byte
	for i := range c.Keys {
		id := keys.ID(i)
		g := int(id % int64(c.Groups))
		if c.Dispatch != "modulo" {
			enc = serde.AppendInt64(enc[:0], id)
			g = exec.GroupOf(exec.HashKey(enc), c.Groups)
		}
		of.keys[g]++
		of.items[g] += int64(k.Weight(i) / sum * whole)
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
	by := route.Tasks(of.items, owners, c.Tasks)
	return Result{
		Case: *c, Degree: route.Degree(by, c.Shares), Extra: route.Extra(by, c.Shares),
		Moved: route.Moved(st.Owners, owners), Hottest: of.hottest * float64(c.Tasks),
	}, nil
}
