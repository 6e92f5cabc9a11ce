package rescale

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fresh is the assignment of a new job.
func fresh(groups, tasks int) []int { return Range(Stage{Owners: make([]int, groups), Tasks: tasks}) }

// The figures of the paper (Meces, figure 14) and of this package's documentation.
func TestGroupsThatMove(t *testing.T) {
	for _, c := range []struct{ groups, from, to, ranged, sticky int }{
		{128, 25, 30, 115, 20},
		{64, 2, 3, 31, 21},
		{64, 2, 4, 48, 32},
		{64, 4, 2, 48, 32},
		{64, 3, 1, 42, 42},
		{64, 4, 64, 63, 60},
	} {
		s := Stage{Name: "keys", Owners: fresh(c.groups, c.from), Tasks: c.to}
		ranged, sticky := Range(s), Sticky(s)
		require.NoError(t, Check(s, ranged))
		require.NoError(t, Check(s, sticky))
		require.Equal(t, c.ranged, Moved(s.Owners, ranged), "range, %d groups, %d to %d", c.groups, c.from, c.to)
		require.Equal(t, c.sticky, Moved(s.Owners, sticky), "sticky, %d groups, %d to %d", c.groups, c.from, c.to)
	}
}

// least returns the lowest number of moves that leads to an assignment whose tasks own almost equal
// numbers of groups. It tries all of them.
func least(s Stage) int {
	owners, owned := make([]int, len(s.Owners)), make([]int, s.Tasks)
	best := len(owners) + 1
	var try func(g, moved int)
	try = func(g, moved int) {
		if moved >= best {
			return
		}
		if g == len(owners) {
			if slices.Max(owned)-slices.Min(owned) <= 1 {
				best = moved
			}
			return
		}
		for task := range s.Tasks {
			more := 0
			if s.Owners[g] != task {
				more = 1
			}
			owned[task]++
			try(g+1, moved+more)
			owned[task]--
		}
	}
	try(0, 0)
	return best
}

// drawStage draws a stage whose owners any sequence of rescales may have left.
func drawStage(t *rapid.T, most int) Stage {
	groups := rapid.IntRange(1, most).Draw(t, "groups")
	before := rapid.IntRange(1, groups).Draw(t, "tasks before")
	return Stage{
		Name:   "keys",
		Owners: rapid.SliceOfN(rapid.IntRange(0, before-1), groups, groups).Draw(t, "owners"),
		Tasks:  rapid.IntRange(1, groups).Draw(t, "tasks"),
	}
}

func TestStickyMovesAsFewAsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStage(t, 7)
		was := slices.Clone(s.Owners)
		owners := Sticky(s)
		require.NoError(t, Check(s, owners))
		owned := counts(owners, s.Tasks)
		require.LessOrEqual(t, slices.Max(owned)-slices.Min(owned), 1)
		require.Equal(t, least(s), Moved(s.Owners, owners))
		require.Equal(t, was, s.Owners)
		require.Zero(t, Moved(owners, Sticky(Stage{Owners: owners, Tasks: s.Tasks})), "a balanced stage stays as it is")
	})
}

// Each receiver has few givers: at most one more than it would have if each giver gave all it has to
// one receiver after the other.
func TestStickyHasFewGivers(t *testing.T) {
	s := Stage{Owners: fresh(64, 2), Tasks: 4}
	givers := map[int]map[int]bool{}
	for g, owner := range Sticky(s) {
		if owner != s.Owners[g] {
			if givers[owner] == nil {
				givers[owner] = map[int]bool{}
			}
			givers[owner][s.Owners[g]] = true
		}
	}
	require.Len(t, givers, 2)
	for task, of := range givers {
		require.Len(t, of, 1, "task %d", task)
	}
}

func TestHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStage(t, 200)
		owners := Hash(s)
		require.NoError(t, Check(s, owners))
		clear(s.Owners)
		require.Equal(t, owners, Hash(s), "it does not depend on the owners so far")
	})
	// A ring moves about the share of the new tasks, and nothing between the old ones but what the
	// tasks without groups take.
	from := Hash(Stage{Owners: make([]int, 128), Tasks: 25})
	to := Hash(Stage{Owners: make([]int, 128), Tasks: 30})
	require.InDelta(t, 128*5/30, Moved(from, to), 12)
}

func TestCheck(t *testing.T) {
	s := Stage{Name: "keys", Owners: []int{0, 0, 1, 1}, Tasks: 3}
	for _, c := range []struct {
		owners []int
		want   string
	}{
		{[]int{0, 1, 2}, "stage keys has 4 key groups: owners are given for 3"},
		{[]int{0, 1, 2, 3}, "stage keys: key group 3 has owner 3: tasks are 0 to 2"},
		{[]int{0, 1, 2, -1}, "stage keys: key group 3 has owner -1: tasks are 0 to 2"},
		{[]int{0, 2, 2, 0}, "stage keys: task 1 owns no key group: give it one, or use fewer tasks"},
	} {
		require.EqualError(t, Check(s, c.owners), c.want)
	}
	require.NoError(t, Check(s, []int{2, 1, 0, 0}))
	require.Equal(t, []int{2, 1, 0, 0}, Explicit([]int{2, 1, 0, 0})(s))
}

func TestStrategies(t *testing.T) {
	s := Stage{Name: "keys", Owners: fresh(64, 2), Tasks: 3}
	for name, want := range map[string]Assign{"sticky": Sticky, "range": Range, "hash": Hash} {
		assign, err := Strategy(name)
		require.NoError(t, err)
		require.Equal(t, want(s), assign(s))
	}
	_, err := Strategy("even")
	require.EqualError(t, err, `unknown strategy "even"; choose one of sticky, range, hash`)
}
