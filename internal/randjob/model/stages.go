package model

import "fmt"

// stages follows which nodes come to run in one stage of the engine, as far as a user has
// to know it: flows that meet in an operator must be partitioned alike, and no stage may
// feed itself.
type stages struct {
	of     []int // node → stage
	into   []int // stage → the one that it was united with, or itself
	inputs []input
}

// input is a stream: from a stage, into one.
type input struct {
	node, from, to      int
	groups, parallelism int
}

func (s *stages) find(st int) int {
	for s.into[st] != st {
		st = s.into[st]
	}
	return st
}

func (s *stages) make() int {
	s.into = append(s.into, len(s.into))
	return len(s.into) - 1
}

// link makes a stage behind a stream.
func (s *stages) link(node, from, groups, parallelism int) int {
	to := s.make()
	s.inputs = append(s.inputs, input{node, from, to, groups, parallelism})
	return to
}

func (s *stages) unite(a, b int) {
	if a, b = s.find(a), s.find(b); a != b {
		s.into[max(a, b)] = min(a, b)
	}
}

func (s *stages) add(i int, n *Node, c Class) {
	st := 0
	switch {
	case n.Op == Source:
		st = s.make()
	case n.Op == KeyBy && n.Ahead:
		st = s.of[n.In[0]]
	case n.Global:
		st = s.link(i, s.of[n.In[0]], 0, 0)
	case n.Op == KeyBy || n.Op == PreAggregate || n.Op == Rebalance || n.Op == Detour || n.Op == Grouped || n.Op == WindowGroups:
		st = s.link(i, s.of[n.In[0]], n.Groups, n.Parallelism)
	case n.Op == Forward: // it keeps its groups, which meet no others
		st = s.link(i, s.of[n.In[0]], 0, n.Parallelism)
	case n.Op == Sink:
		p := max(n.Parallelism, 1)
		st = s.link(i, s.of[n.In[0]], p, p)
	case n.Op == Merge:
		a, b := s.of[n.In[0]], s.of[n.In[1]]
		if s.find(a) != s.find(b) {
			a, b = s.link(i, a, 0, 0), s.link(i, b, 0, 0)
			s.unite(a, b)
		}
		st = a
	case n.Op == JoinForeign || n.Op == LeftJoinForeign: // to the right table, and back
		there, right := s.of[n.In[0]], s.of[n.In[1]]
		s.unite(s.link(i, there, s.groups(right), 0), right)
		st = s.link(i, right, n.Groups, n.Parallelism)
	case n.Op == JoinBroadcast || n.Op == LeftJoinBroadcast: // the table comes
		st = s.of[n.In[0]]
		s.unite(s.link(i, s.of[n.In[1]], s.groups(st), 0), st)
	case len(n.In) == 2:
		s.unite(s.of[n.In[0]], s.of[n.In[1]])
		st = s.of[n.In[0]]
	default:
		st = s.of[n.In[0]]
	}
	s.of = append(s.of, st)
}

// groups returns the number of key groups of what comes to a stage, 0: the job's setting.
func (s *stages) groups(st int) int {
	for _, in := range s.inputs {
		if s.find(in.to) == s.find(st) {
			return in.groups
		}
	}
	return 0
}

// check returns why the engine must refuse the job, and an error if it is none that should
// be drawn: a stage that feeds itself.
func (s *stages) check() (refused string, err error) {
	groups, parallelism := map[int]int{}, map[int]int{}
	next := map[int][]int{}
	for _, in := range s.inputs {
		to := s.find(in.to)
		next[s.find(in.from)] = append(next[s.find(in.from)], to)
		if g, ok := groups[to]; ok && g != in.groups && refused == "" {
			refused = fmt.Sprintf("node %d: %d key groups meet %d", in.node, in.groups, g)
		}
		groups[to] = in.groups
		if p := parallelism[to]; p != 0 && in.parallelism != 0 && p != in.parallelism && refused == "" {
			refused = fmt.Sprintf("node %d: parallelism %d meets %d", in.node, in.parallelism, p)
		}
		parallelism[to] = max(parallelism[to], in.parallelism)
	}
	const open, done = 1, 2
	state := map[int]int{}
	var visit func(st int) bool
	visit = func(st int) bool {
		if state[st] != 0 {
			return state[st] == done
		}
		state[st] = open
		for _, to := range next[st] {
			if !visit(to) {
				return false
			}
		}
		state[st] = done
		return true
	}
	for st := range s.into {
		if !visit(s.find(st)) {
			return refused, fmt.Errorf("a stage feeds itself")
		}
	}
	return refused, nil
}
