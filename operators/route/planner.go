package route

import (
	"fmt"
	"slices"
	"strings"
)

// Stage is what a planner makes owners for.
type Stage struct {
	// Owners is the present owner of each key group; it is not changed. One that is not in [0, Tasks)
	// leaves.
	Owners []int
	// Slots is how many of the groups, the last ones, are slots.
	Slots int
	// Tasks is the number of tasks, at least 1 and at most that of groups.
	Tasks int
	// Items is the load of each group in items, Keys the number of its keys; nil: not known.
	Items, Keys []int64
	// Shares are the parts of the load that the tasks are to have, as CheckShares accepts them, for the planner
	// weight; nil: equal ones.
	Shares []float64
}

// CheckShares returns an error unless shares can be compared: each is at least a thousandth, and at most a thousand.
func CheckShares(shares []float64) error {
	for _, x := range shares {
		if !(x >= 1e-3 && x <= 1e3) {
			return fmt.Errorf("task weight %v: use numbers above 0, from 0.001 to 1000", x)
		}
	}
	return nil
}

// Planner returns an owner in [0, Tasks) for each group of a stage. It is a function of its argument
// alone.
type Planner func(s *Stage) []int

// names lists the planners, in the order of the help texts.
var names = []string{"hash", "least-key", "least-count", "weight", "auto"}

// ByName returns the planner with this name, or an error that lists all planners.
func ByName(name string) (Planner, error) {
	switch name {
	case "hash":
		return Hash, nil
	case "least-key":
		return LeastKey, nil
	case "least-count":
		return LeastCount, nil
	case "weight":
		return Weight, nil
	case "auto":
		return Auto, nil
	}
	return nil, fmt.Errorf("there is no dispatch %q; use %s", name, strings.Join(names, ", "))
}

// Names lists the planners.
func Names() []string { return slices.Clone(names) }

// Hash assigns ranges of groups of almost equal length, as in a new job: groups that a hash of keys
// names have about equal loads if there are many more keys than groups.
func Hash(s *Stage) []int {
	owners := make([]int, len(s.Owners)-s.Slots)
	for g := range owners {
		owners[g] = g * s.Tasks / len(owners)
	}
	return Spread(owners, s.Slots)
}

// LeastKey balances the numbers of keys; without them, the numbers of groups.
func LeastKey(s *Stage) []int { return Balance(s.Owners, s.Tasks, s.Keys, nil) }

// LeastCount balances the numbers of items; without them, those of keys.
func LeastCount(s *Stage) []int {
	if s.Items == nil {
		return LeastKey(s)
	}
	return Balance(s.Owners, s.Tasks, s.Items, nil)
}

// Weight is LeastCount for tasks with shares.
func Weight(s *Stage) []int {
	if s.Items == nil {
		return Balance(s.Owners, s.Tasks, s.Keys, s.Shares)
	}
	return Balance(s.Owners, s.Tasks, s.Items, s.Shares)
}

// Auto returns the best of the others' plans, by the items a second; without them, LeastKey's.
func Auto(s *Stage) []int {
	if s.Items == nil {
		return LeastKey(s)
	}
	var best []int
	degree, moved := -1.0, 0
	for _, plan := range []Planner{Weight, LeastCount, LeastKey, Hash} {
		owners := plan(s)
		d, m := Degree(Tasks(s.Items, owners, s.Tasks), s.Shares), Moved(s.Owners, owners)
		if d > degree || d == degree && m < moved {
			best, degree, moved = owners, d, m
		}
	}
	return best
}
