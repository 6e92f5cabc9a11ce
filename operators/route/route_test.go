package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDegree(t *testing.T) {
	for _, c := range []struct {
		tasks         []int64
		shares        []float64
		degree, extra float64
	}{
		{[]int64{10, 10, 10}, nil, 1, 0},
		{[]int64{0, 0}, nil, 1, 0},
		{[]int64{0, 10}, nil, 0, 1},
		{[]int64{5, 10, 15}, nil, 1.0 / 3, 0.5},
		{[]int64{30, 10}, []float64{3, 1}, 1, 0},
		{[]int64{20, 20}, []float64{3, 1}, 1.0 / 3, 1},
		{[]int64{7}, nil, 1, 0},
		{nil, nil, 1, 0},
	} {
		require.InDelta(t, c.degree, Degree(c.tasks, c.shares), 1e-9, "%v", c)
		require.InDelta(t, c.extra, Extra(c.tasks, c.shares), 1e-9, "%v", c)
	}
}

// drawn is a stage that any sequence of steps and rescales may have left.
func drawn(t *rapid.T, groups int) *Stage {
	g := rapid.IntRange(1, groups).Draw(t, "groups")
	load := rapid.SliceOfN(rapid.Int64Range(0, 100), g, g)
	s := &Stage{
		Owners: rapid.SliceOfN(rapid.IntRange(0, g-1), g, g).Draw(t, "owners"), Tasks: rapid.IntRange(1, min(g, 3)).Draw(t, "tasks"),
		Items: load.Draw(t, "items"), Keys: load.Draw(t, "keys"),
	}
	if rapid.Bool().Draw(t, "shares") {
		s.Shares = rapid.SliceOfN(rapid.SampledFrom([]float64{1, 2, 3}), s.Tasks, s.Tasks).Draw(t, "of")
	}
	return s
}

// complete reports whether each group has an owner, and each task a group.
func complete(owners []int, tasks int) bool {
	n := make([]int, tasks)
	for _, owner := range owners {
		if owner < 0 || owner >= tasks {
			return false
		}
		n[owner]++
	}
	return !slices.Contains(n, 0)
}

// exact returns the best degree of all assignments, and the least number of moves that lead to an
// assignment of at least a degree. It tries all.
func exact(s *Stage, load []int64, shares []float64, atLeast float64) (best float64, moves int) {
	owners := make([]int, len(s.Owners))
	best, moves = -1, math.MaxInt
	var try func(g int)
	try = func(g int) {
		if g < len(owners) {
			for i := range s.Tasks {
				owners[g] = i
				try(g + 1)
			}
			return
		}
		if !complete(owners, s.Tasks) {
			return
		}
		d := Degree(Tasks(load, owners, s.Tasks), shares)
		if best = max(best, d); d >= atLeast {
			moves = min(moves, Moved(s.Owners, owners))
		}
	}
	try(0)
	return best, moves
}

// The planners against all assignments of up to seven groups: a plan is complete, is not worse than
// what is, and changes nothing of what is good enough.
func TestPlannersAgainstAll(t *testing.T) {
	var degrees, bests float64
	plans, moves, least, more := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t, 7)
		was := slices.Clone(s.Owners)
		for name, by := range map[string]struct {
			load   []int64
			shares []float64
		}{"least-key": {s.Keys, nil}, "least-count": {s.Items, nil}, "weight": {s.Items, s.Shares}, "auto": {s.Items, s.Shares}, "hash": {}} {
			plan, err := ByName(name)
			require.NoError(t, err)
			owners := plan(s)
			require.Equal(t, was, s.Owners)
			require.True(t, complete(owners, s.Tasks), "%s: %v", name, owners)
			require.Equal(t, owners, plan(s), "a function of its argument")
			if name == "hash" {
				continue
			}
			d := Degree(Tasks(by.load, owners, s.Tasks), by.shares)
			if complete(s.Owners, s.Tasks) {
				have := Degree(Tasks(by.load, s.Owners, s.Tasks), by.shares)
				require.GreaterOrEqual(t, d, have, name)
				if have >= Target && name != "auto" {
					require.Equal(t, s.Owners, owners, name)
				}
			}
			if name == "least-count" {
				best, fewest := exact(s, by.load, nil, d)
				require.LessOrEqual(t, d, best+1e-9)
				plans++
				degrees, bests = degrees+d, bests+best
				m := Moved(s.Owners, owners)
				moves, least = moves+m, least+fewest
				if m > fewest+2 {
					more++
				}
			}
		}
		auto := Degree(Tasks(s.Items, Auto(s), s.Tasks), s.Shares)
		for _, plan := range []Planner{Hash, LeastKey, LeastCount, Weight} {
			require.GreaterOrEqual(t, auto, Degree(Tasks(s.Items, plan(s), s.Tasks), s.Shares))
		}
	})
	t.Logf("%d plans: mean degree %.3f, of the best %.3f; %d moves, %d needed; %d with more than two too many", plans, degrees/float64(plans), bests/float64(plans), moves, least, more)
	require.Greater(t, degrees, 0.97*bests, "the greedy algorithm is nearly as good as all together")
	require.Less(t, float64(moves), 1.25*float64(least)+1, "and moves little more than it must")
}

func TestAutoTakesFewestMoves(t *testing.T) {
	s := &Stage{Owners: []int{0, 1, 0, 1}, Tasks: 2, Items: []int64{5, 5, 5, 5}, Keys: []int64{1, 1, 9, 1}}
	require.Equal(t, s.Owners, Auto(s), "hash would be as even")
	s.Items = nil
	require.Equal(t, LeastKey(s), Auto(s))
	require.NotEqual(t, s.Owners, Auto(s))
}

func TestWeight(t *testing.T) {
	s := &Stage{Owners: make([]int, 64), Tasks: 3, Items: slices.Repeat([]int64{10}, 64), Shares: []float64{3, 1, 1}}
	by := Tasks(s.Items, Weight(s), 3)
	require.InDelta(t, 384, by[0], 15, "%v", by)
	require.InDelta(t, 128, by[1], 15, "%v", by)
	require.GreaterOrEqual(t, Degree(by, s.Shares), 0.9)
	require.Less(t, Degree(by, nil), 0.4)
}

// A stage that gets other tasks is balanced with the load in mind: who leaves has nothing, who comes
// has its part.
func TestOtherTasks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	load := make([]int64, 256)
	for g := range load {
		load[g] = 1 + rng.Int64N(100)
	}
	owners := Hash(&Stage{Owners: make([]int, 256), Tasks: 4})
	for _, n := range []int{6, 3, 8, 1, 2} {
		next := Balance(owners, n, load, nil)
		require.True(t, complete(next, n))
		require.GreaterOrEqual(t, Degree(Tasks(load, next, n), nil), Target, "%d tasks", n)
		owners = next
	}
}

// The numbers of the design's table (section 3.6 of its document): Zipf weights of a million keys in G groups,
// hash and greedy, 8 and 60 tasks. Slow, so only a part: BenchmarkBalance has the others.
func TestZipf(t *testing.T) {
	for _, c := range []struct {
		tasks, groups  int
		zipf           float64
		hash, balanced float64 // at most, at least
	}{
		{8, 1024, 0, 1, 0.985},
		{8, 1024, 0.8, 0.95, 0.985},
		{8, 256, 0.8, 0.95, 0.97},
		{60, 1024, 0, 0.95, 0.93},
	} {
		load := make([]int64, c.groups)
		rng := rand.New(rand.NewPCG(3, 4))
		for i := range 1_000_000 {
			load[rng.IntN(c.groups)] += int64(1e6 * math.Pow(float64(i+1), -c.zipf))
		}
		s := &Stage{Owners: make([]int, c.groups), Tasks: c.tasks, Items: load}
		s.Owners = Hash(s)
		require.LessOrEqual(t, Degree(Tasks(load, s.Owners, c.tasks), nil), c.hash, "%v", c)
		require.GreaterOrEqual(t, Degree(Tasks(load, LeastCount(s), c.tasks), nil), c.balanced, "%v", c)
	}
}

func TestHistory(t *testing.T) {
	var h History
	require.Nil(t, h.Load())
	h.Add(1000, []int64{100, 0})
	h.Add(11_000, []int64{0, 50})
	require.Equal(t, []int64{50 * 1024, 50 * 1024}, h.Load(), "an item of 10 s ago counts half")
	h.Add(31_000, []int64{0, 0})
	require.Equal(t, []int64{12.5 * 1024, 12.5 * 1024}, h.Load())
}

func TestNames(t *testing.T) {
	for _, name := range Names() {
		_, err := ByName(name)
		require.NoError(t, err)
	}
	_, err := ByName("best")
	require.EqualError(t, err, `there is no dispatch "best"; use hash, least-key, least-count, weight, auto`)
}

func BenchmarkBalance(b *testing.B) {
	for _, c := range []struct{ tasks, groups int }{{8, 256}, {8, 1024}, {60, 1024}} {
		b.Run(fmt.Sprint(c.tasks, "of", c.groups), func(b *testing.B) {
			load := make([]int64, c.groups)
			rng := rand.New(rand.NewPCG(3, 4))
			for g := range load {
				load[g] = int64(1e6 * math.Exp(rng.NormFloat64()))
			}
			owners := Hash(&Stage{Owners: make([]int, c.groups), Tasks: c.tasks})
			for b.Loop() {
				Balance(owners, c.tasks, load, nil)
			}
		})
	}
}

// Where moving and exchanging groups one by one ends in a corner, a plan from nothing is better. Its
// tasks are numbered such that few groups move.
func TestCorner(t *testing.T) {
	owners, load := []int{2, 1, 1, 2, 1, 0, 1, 2}, []int64{4, 1, 6, 11, 7, 9, 4, 6}
	next := Balance(owners, 3, load, nil)
	require.Equal(t, 1.0, Degree(Tasks(load, next, 3), nil))
	require.Equal(t, 3, Moved(owners, next))
}

// With shares that differ much, a step can make the fullest of two tasks less full and the other one
// emptier than any was: then all stays as it is.
func TestSharesThatDifferMuch(t *testing.T) {
	owners := []int{0, 0, 1, 1}
	require.Equal(t, owners, Balance(owners, 2, []int64{1, 3, 12, 6}, []float64{1, 5}))
}

// An exchange helps where no group is small enough to be moved.
func TestExchange(t *testing.T) {
	load := []int64{9, 8, 6, 7}
	next := Balance([]int{0, 0, 1, 1}, 2, load, nil)
	require.Equal(t, []int64{15, 15}, Tasks(load, next, 2))
	require.Equal(t, 2, Moved([]int{0, 0, 1, 1}, next))
}
