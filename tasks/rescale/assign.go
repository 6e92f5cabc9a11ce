package rescale

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
)

// Stage is what a strategy needs to know of a stage.
type Stage struct {
	Name string
	// Owners is the present owner of each key group; it is not changed.
	Owners []int
	// Tasks is the wanted number of tasks, at most the number of key groups.
	Tasks int
	// Load is the load of each key group, in any unit; nil: not known. The strategies of this package
	// count groups.
	Load []int64
}

// Assign returns an owner in [0, Tasks) for each key group of a stage. It must be a function of its
// argument alone.
type Assign func(Stage) []int

// Strategy returns the strategy with this name, or an error that lists all strategies.
func Strategy(name string) (Assign, error) {
	switch name {
	case "sticky":
		return Sticky, nil
	case "range":
		return Range, nil
	case "hash":
		return Hash, nil
	}
	return nil, fmt.Errorf("unknown strategy %q; choose one of sticky, range, hash", name)
}

// Explicit returns a strategy with fixed owners.
func Explicit(owners []int) Assign { return func(Stage) []int { return slices.Clone(owners) } }

// Check returns an error if owners are not an assignment for the stage: each group has an owner that
// is one of its tasks, and each task owns a group.
func Check(s Stage, owners []int) error {
	if len(owners) != len(s.Owners) {
		return fmt.Errorf("stage %s has %d key groups: owners are given for %d", s.Name, len(s.Owners), len(owners))
	}
	owned := counts(owners, s.Tasks)
	for g, owner := range owners {
		if owner < 0 || owner >= s.Tasks {
			return fmt.Errorf("stage %s: key group %d has owner %d: tasks are 0 to %d", s.Name, g, owner, s.Tasks-1)
		}
	}
	if i := slices.Index(owned, 0); i >= 0 {
		return fmt.Errorf("stage %s: task %d owns no key group: give it one, or use fewer tasks", s.Name, i)
	}
	return nil
}

// counts returns how many groups each task owns.
func counts(owners []int, tasks int) []int {
	n := make([]int, tasks)
	for _, owner := range owners {
		if owner >= 0 && owner < tasks {
			n[owner]++
		}
	}
	return n
}

// Moved returns how many groups have another owner.
func Moved(from, to []int) (n int) {
	for g := range from {
		if from[g] != to[g] {
			n++
		}
	}
	return n
}

// Range assigns ranges of groups of almost equal length: task g*Tasks/len(groups), as a new job.
func Range(s Stage) []int {
	owners := make([]int, len(s.Owners))
	for g := range owners {
		owners[g] = g * s.Tasks / len(owners)
	}
	return owners
}

// Sticky moves as few groups as possible such that the numbers of groups of two tasks differ by at
// most one. A receiver gets its groups from few givers: at each giver, those with the highest
// numbers.
func Sticky(s Stage) []int {
	owners := slices.Clone(s.Owners)
	have := counts(owners, s.Tasks)
	// The tasks that own most groups get the larger shares.
	order := make([]int, s.Tasks)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(have[b], have[a]) })
	share := make([]int, s.Tasks)
	for i, task := range order {
		if share[task] = len(owners) / s.Tasks; i < len(owners)%s.Tasks {
			share[task]++
		}
	}
	surplus := map[int][]int{} // by giver, which may be a task that leaves
	var givers []int
	for g := len(owners) - 1; g >= 0; g-- {
		from := owners[g]
		if from < s.Tasks {
			if have[from] <= share[from] {
				continue
			}
			have[from]--
		}
		if len(surplus[from]) == 0 {
			givers = append(givers, from)
		}
		surplus[from] = append(surplus[from], g)
	}
	slices.Sort(givers)
	for to := range s.Tasks {
		for have[to] < share[to] {
			// The giver with most to give: then few givers are needed.
			best := givers[0]
			for _, from := range givers {
				if len(surplus[from]) > len(surplus[best]) {
					best = from
				}
			}
			n := min(len(surplus[best]), share[to]-have[to])
			for _, g := range surplus[best][:n] {
				owners[g] = to
			}
			surplus[best] = surplus[best][n:]
			have[to] += n
		}
	}
	return owners
}

// ringPoints is the number of points of a task on the ring.
const ringPoints = 64

// Hash assigns by consistent hashing: each task has points on a ring, and a group belongs to the
// task of the next point. It depends on nothing but the numbers of groups and tasks. A task that the
// ring gives nothing takes a group of the task that has most.
func Hash(s Stage) []int {
	type point struct {
		at   uint64
		task int
	}
	ring := make([]point, 0, s.Tasks*ringPoints)
	for task := range s.Tasks {
		for i := range ringPoints {
			ring = append(ring, point{ringHash('t', task, i), task})
		}
	}
	slices.SortFunc(ring, func(a, b point) int { return cmp.Or(cmp.Compare(a.at, b.at), a.task-b.task) })
	owners := make([]int, len(s.Owners))
	for g := range owners {
		h := ringHash('g', g, 0)
		i, _ := slices.BinarySearchFunc(ring, h, func(p point, h uint64) int { return cmp.Compare(p.at, h) })
		owners[g] = ring[i%len(ring)].task
	}
	owned := counts(owners, s.Tasks)
	for task := range s.Tasks {
		if owned[task] == 0 {
			most := slices.Index(owned, slices.Max(owned))
			owners[slices.Index(owners, most)] = task
			owned[most]--
			owned[task]++
		}
	}
	return owners
}

func ringHash(kind byte, number, point int) uint64 {
	b := []byte{kind}
	b = binary.BigEndian.AppendUint32(b, uint32(number))
	b = binary.BigEndian.AppendUint32(b, uint32(point))
	h := fnv.New64a()
	h.Write(b) // never fails
	x := h.Sum64()
	// FNV alone leaves near inputs near.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
