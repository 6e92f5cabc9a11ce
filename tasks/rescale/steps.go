package rescale

import (
	"cmp"
	"slices"
)

// Step is what one plan changes of a stage.
type Step struct {
	// Tasks and Owners are as in Plan.
	Tasks  int
	Owners []int
	Moves  []Move
}

// Steps returns the steps from the owners that a stage has with some tasks to the goal with others.
// A group moves at most once, from its present owner to its last one: first to newcomers, then
// among the tasks that stay, then from those that leave. In a step no task gives, or receives, more
// than batch groups; 0: there is one step. Moves to newcomers are early, if early is set.
//
// Newcomers enter in the order of their numbers, each with at least one group, and a task leaves
// when it gives its last group and no higher one is left: so the tasks of a stage always are
// 0 … Tasks-1, none of them is registered as a producer without a place to start, and each that
// leaves has a plan at which it does.
func Steps(owners []int, tasks int, goal []int, goalTasks, batch int, early bool) (steps []Step) {
	left := moves(owners, goal, min(tasks, goalTasks))
	if batch <= 0 {
		batch = len(owners)
	}
	now := slices.Clone(owners)
	entered := tasks // tasks below it have been told to start
	for len(left) > 0 || tasks != goalTasks && len(steps) == 0 {
		gives, gets := map[int]int{}, map[int]int{}
		var took []move
		before := entered
		var rest []move
		for _, m := range left {
			ok := gives[m.from] < batch && gets[m.to] < batch && m.to <= entered && !leavesHole(m, now, goalTasks)
			if !ok {
				rest = append(rest, m)
				continue
			}
			gives[m.from]++
			gets[m.to]++
			now[m.group] = m.to
			entered = max(entered, m.to+1)
			took = append(took, m)
		}
		left = rest
		steps = append(steps, step(took, now, min(tasks, goalTasks), before, early))
		if len(took) == 0 {
			break // only tasks without groups leave
		}
	}
	return steps
}

type move struct{ group, from, to int }

// moves returns the moves from one assignment to another in the order in which they are made; tasks
// from stay on are newcomers or leave.
func moves(owners, goal []int, stay int) (all []move) {
	for g := range owners {
		if owners[g] != goal[g] {
			all = append(all, move{g, owners[g], goal[g]})
		}
	}
	phase := func(m move) int {
		switch {
		case m.to >= stay:
			return 0
		case m.from < stay:
			return 1
		}
		return 2
	}
	slices.SortFunc(all, func(a, b move) int {
		if c := cmp.Compare(phase(a), phase(b)); c != 0 {
			return c
		}
		if phase(a) == 2 {
			return cmp.Or(cmp.Compare(b.from, a.from), cmp.Compare(a.to, b.to), cmp.Compare(a.group, b.group))
		}
		return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from), cmp.Compare(a.group, b.group))
	})
	return all
}

// leavesHole reports whether a move takes the last group of a task that leaves while a higher one
// still owns groups.
func leavesHole(m move, now []int, goalTasks int) bool {
	if m.from < goalTasks {
		return false
	}
	for g, owner := range now {
		if g != m.group && owner == m.from {
			return false // not the last one
		}
	}
	return slices.ContainsFunc(now, func(owner int) bool { return owner > m.from })
}

// step makes a Step of moves; tasks from started on are newcomers in it.
func step(took []move, now []int, stay, started int, early bool) Step {
	s := Step{Owners: slices.Clone(now), Tasks: stay}
	for _, owner := range now {
		s.Tasks = max(s.Tasks, owner+1)
	}
	slices.SortStableFunc(took, func(a, b move) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.group, b.group))
	})
	for _, m := range took {
		n := len(s.Moves)
		if n == 0 || s.Moves[n-1].From != m.from || s.Moves[n-1].To != m.to {
			s.Moves = append(s.Moves, Move{From: m.from, To: m.to, Early: early && m.to >= started})
			n++
		}
		s.Moves[n-1].Groups = append(s.Moves[n-1].Groups, m.group)
	}
	return s
}
