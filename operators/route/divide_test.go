package route

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
)

// population is keys with loads.
type population struct {
	keys  [][]byte
	loads []int64
}

// zipf returns n keys whose loads are those of a Zipf distribution, in a random order.
func zipf(n int, s float64, seed uint64) *population {
	p := &population{}
	for i := range n {
		p.keys = append(p.keys, binary.BigEndian.AppendUint64(nil, uint64(i)))
		p.loads = append(p.loads, int64(1e9*math.Pow(float64(i+1), -s)))
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(n, func(i, k int) { p.loads[i], p.loads[k] = p.loads[k], p.loads[i] })
	return p
}

// of returns the loads of the key groups of a table.
func (p *population) of(t *Table) []int64 {
	load := make([]int64, t.Groups+t.Slots)
	for i, k := range p.keys {
		load[t.Group(exec.HashKey(k), k)] += p.loads[i]
	}
	return load
}

// fine returns what is known of the loads: of the heaviest keys alone, or of parts, too.
func (p *population) fine(t *Table, heaviest int, parts bool) (f Fine) {
	if parts {
		f.Parts = make([]int64, t.Groups*Parts)
	}
	for i, k := range p.keys {
		hash := exec.HashKey(k)
		if g := t.Group(hash, k); g < t.Groups && parts {
			f.Parts[g*Parts+exec.SubGroupOf(hash, t.Groups, Parts)] += p.loads[i]
		}
		f.Keys = append(f.Keys, KeyLoad{string(k), p.loads[i]})
	}
	slices.SortFunc(f.Keys, func(a, b KeyLoad) int { return int(b.Load - a.Load) })
	f.Keys = f.Keys[:min(heaviest, len(f.Keys))]
	return f
}

// divided plans for a population, and returns owners, the next table and the degree that they have.
func divided(t require.TestingT, p *population, table *Table, have []int, tasks, heaviest int, parts bool, shares []float64) ([]int, *Table, float64) {
	load := p.of(table)
	owners := Balance(have, tasks, load, shares)
	owners, places := Divide(&Cut{Table: table, Have: have, Owners: owners, Tasks: tasks, Load: load, Shares: shares, Fine: p.fine(table, heaviest, parts)})
	after, err := NewTable(table.Epoch+1, table.Groups, table.Slots, places)
	require.NoError(t, err)
	return owners, after, Degree(Tasks(p.of(after), owners, tasks), shares)
}

// Where whole groups are too coarse, slots make the tasks even.
func TestDivide(t *testing.T) {
	for name, c := range map[string]struct {
		keys         int
		zipf         float64
		tasks        int
		groups       int
		slots        int
		parts        bool
		whole, least float64 // degree without slots, at most; with them, at least
	}{
		"few groups":                {20_000, 0, 30, 64, 64, true, 0.75, 0.98},
		"hot keys":                  {20_000, 1, 8, 16, 32, true, 0.9, 0.985},
		"a key is nearly a task":    {20_000, 1.1, 6, 12, 16, true, 0.9, 0.98},
		"only heavy keys are known": {20_000, 1.1, 6, 12, 16, false, 0.9, 0.95},
	} {
		t.Run(name, func(t *testing.T) {
			p := zipf(c.keys, c.zipf, 1)
			none, err := NewTable(0, c.groups, 0, nil)
			require.NoError(t, err)
			table, err := NewTable(0, c.groups, c.slots, nil)
			require.NoError(t, err)
			have := Hash(&Stage{Owners: make([]int, c.groups), Tasks: c.tasks})
			_, _, whole := divided(t, p, none, have, c.tasks, 100, c.parts, nil)
			require.LessOrEqual(t, whole, c.whole)
			owners, after, degree := divided(t, p, table, Spread(have, c.slots), c.tasks, 100, c.parts, nil)
			require.GreaterOrEqual(t, degree, c.least, "%d slots", len(after.Places()))
			if c.parts { // what has been planned is good enough
				same, again, _ := divided(t, p, after, owners, c.tasks, 100, c.parts, nil)
				require.Empty(t, Diff(after, again))
				require.Zero(t, Moved(owners, same))
			}
		})
	}
}

// A plan that needs slots uses them until it comes close to aim; Target, below which it needs them, is less.
func TestDivideAimsHigher(t *testing.T) {
	needed := 0
	for seed := range uint64(20) {
		p := zipf(20_000, 1, seed)
		table, err := NewTable(0, 8, 64, nil)
		require.NoError(t, err)
		_, after, degree := divided(t, p, table, Spread(Hash(&Stage{Owners: make([]int, 8), Tasks: 3}), 64), 3, 100, true, nil)
		if len(after.Places()) > 0 {
			needed++
			require.GreaterOrEqual(t, degree, 0.991, "seed %d", seed)
		}
	}
	require.Greater(t, needed, 10)
}

// A key that is heavier than a task gets at most a slot, however many there are: the others become even.
func TestDivideHotKey(t *testing.T) {
	p := zipf(1000, 2, 1)
	table, err := NewTable(0, 64, 64, nil)
	require.NoError(t, err)
	have := Spread(Hash(&Stage{Owners: make([]int, 64), Tasks: 8}), 64)
	owners, after, _ := divided(t, p, table, have, 8, 100, true, nil)
	again, same, _ := divided(t, p, after, owners, 8, 100, true, nil)
	require.Empty(t, Diff(after, same), "a plan is not improved again and again")
	require.Zero(t, Moved(owners, again))
}

// A part whose load is gone is taken back, and its slot is free.
func TestDivideTakesBackWhatIsCold(t *testing.T) {
	p := zipf(5000, 1.1, 1)
	table, err := NewTable(0, 12, 12, nil)
	require.NoError(t, err)
	have := Spread(Hash(&Stage{Owners: make([]int, 12), Tasks: 6}), 12)
	owners, hot, _ := divided(t, p, table, have, 6, 50, true, nil)
	require.NotEmpty(t, hot.Places())
	for i, k := range p.keys {
		if hot.Group(exec.HashKey(k), k) >= hot.Groups {
			p.loads[i] = 0
		}
	}
	_, cool, _ := divided(t, p, hot, owners, 6, 50, true, nil)
	for _, place := range cool.Places() {
		require.NotContains(t, hot.Places(), place)
	}
}

// Whatever the loads and the present table are: the plan is complete, its table valid, its degree not
// below that of whole groups, and what is not in use stays where it is.
func TestDivideAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, _, keys := drawTable(t)
		p := &population{}
		for i := range 200 {
			keys = append(keys, binary.BigEndian.AppendUint64(nil, uint64(i)))
		}
		slices.SortFunc(keys, slices.Compare[[]byte])
		for _, k := range slices.CompactFunc(keys, slices.Equal[[]byte]) {
			p.keys = append(p.keys, k)
			p.loads = append(p.loads, rapid.Int64Range(0, 9).Draw(t, "load")*rapid.SampledFrom([]int64{1, 1, 50}).Draw(t, "of"))
		}
		tasks := rapid.IntRange(1, min(table.Groups, 5)).Draw(t, "tasks")
		n := table.Groups + table.Slots
		have := rapid.SliceOfN(rapid.IntRange(0, tasks-1), n, n).Draw(t, "have")
		owners := rapid.SliceOfN(rapid.IntRange(0, tasks-1), n, n).Draw(t, "owners")
		for i := range tasks {
			owners[i] = i
		}
		var shares []float64
		if rapid.Bool().Draw(t, "shares") {
			shares = rapid.SliceOfN(rapid.SampledFrom([]float64{1, 2, 3}), tasks, tasks).Draw(t, "of")
		}
		load := p.of(table)
		cut := &Cut{Table: table, Have: have, Owners: owners, Tasks: tasks, Load: load, Shares: shares, Fine: p.fine(table, 30, true)}
		now, places := Divide(cut)
		require.Equal(t, p.of(table), load, "the loads are not changed")
		after, err := NewTable(table.Epoch, table.Groups, table.Slots, places)
		require.NoError(t, err)
		used := slices.Clone(now[:table.Groups])
		for _, p := range places {
			used = append(used, now[p.Slot])
		}
		require.True(t, complete(used, tasks), "owners %v", now)
		require.True(t, complete(now, tasks), "owners %v", now)
		for slot := table.Groups; slot < n; slot++ {
			if _, ok := after.At(slot); !ok {
				require.Equal(t, have[slot], now[slot], "empty slot %d", slot)
			}
		}
		var mean float64
		for _, l := range load {
			mean += float64(l) / float64(tasks)
		}
		for _, c := range Diff(table, after) {
			if c.From >= table.Groups && float64(load[c.From]) >= cold*mean+1e-9 { // what is within a part is not known
				all, without := divide(cut), divideWithout(cut, 0)
				require.Empty(t, without.free, "%v is taken back, and a slot is free", c.Part)
				require.GreaterOrEqual(t, all.degree(), without.degree()+clearly)
				return
			}
		}
		lost := 0.0 // by what is taken back, at most
		for _, c := range Diff(table, after) {
			if c.From >= table.Groups {
				lost += cold * 3
			}
		}
		before, degree := Degree(Tasks(load, owners, tasks), shares), Degree(Tasks(p.of(after), now, tasks), shares)
		require.GreaterOrEqual(t, degree, before-3*lost)
	})
}

// Free slots are with the tasks of all groups, in equal numbers.
func TestSpread(t *testing.T) {
	require.Equal(t, []int{0, 1, 2, 3, 0, 2}, Spread([]int{0, 1, 2, 3}, 2))
	require.Equal(t, []int{0, 0, 1, 1, 0, 0, 0, 1, 1, 1}, Spread([]int{0, 0, 1, 1}, 6))
	require.Equal(t, []int{1, 0}, Spread([]int{1, 0}, 0))
}

// While no items come, nothing is known: what is placed stays where it is.
func TestDivideWithoutLoad(t *testing.T) {
	places := []Place{{Single([]byte("a")), 8}, {Part{Group: 3, Sub: 4, N: 2}, 9}}
	table, err := NewTable(0, 8, 3, places)
	require.NoError(t, err)
	owners := Spread(Hash(&Stage{Owners: make([]int, 8), Tasks: 2}), 3)
	now, same := Divide(&Cut{Table: table, Have: owners, Owners: owners, Tasks: 2, Load: make([]int64, 11)})
	require.Equal(t, places, same)
	require.Equal(t, owners, now)
}

// Empty slots of tasks that leave are with tasks that stay.
func TestDivideForFewerTasks(t *testing.T) {
	table, err := NewTable(0, 4, 4, nil)
	require.NoError(t, err)
	have, load := []int{0, 1, 2, 3, 3, 2, 1, 0}, []int64{5, 5, 5, 5, 0, 0, 0, 0}
	planned := Balance(have, 2, load, nil)
	now, places := Divide(&Cut{Table: table, Have: have, Owners: planned, Tasks: 2, Load: load})
	require.Empty(t, places)
	require.Equal(t, planned, now)
	require.True(t, complete(now, 2))
}

// A part is placed in a slot that its hash group's owner has already, so that nothing moves before the table
// changes.
func TestDivideUsesSlotsOfTheOwner(t *testing.T) {
	table, err := NewTable(0, 2, 2, nil)
	require.NoError(t, err)
	p := zipf(1000, 0, 1)
	for i, k := range p.keys {
		if table.Group(exec.HashKey(k), k) == 1 {
			p.loads[i] /= 10
		}
	}
	for _, slots := range [][]int{{0, 1}, {1, 0}} {
		have := append([]int{0, 1}, slots...)
		_, places := Divide(&Cut{Table: table, Have: have, Owners: have, Tasks: 2, Load: p.of(table), Fine: p.fine(table, 10, true)})
		require.NotEmpty(t, places)
		require.Equal(t, 0, places[0].Group)
		require.Equal(t, 0, have[places[0].Slot], "slots of %v", slots)
	}
}

// What is known of keys counts within what their hash groups have: a placed key is no part of that, and what
// the others leave of a group is spread over its sub-groups.
func TestFineLoads(t *testing.T) {
	a, b := Single([]byte("a")), Single([]byte("b"))
	require.NotEqual(t, a.Home(8), b.Home(8))
	table, err := NewTable(0, 8, 2, []Place{{b, 8}})
	require.NoError(t, err)
	load := slices.Repeat([]int64{160}, 10)
	c := newCutter(&Cut{
		Table: table, Have: make([]int, 10), Owners: make([]int, 10), Tasks: 1, Load: load,
		Fine: Fine{Keys: []KeyLoad{{"b", 80}, {"a", 1000}}},
	})
	require.Equal(t, []key{{a, a.Home(8), a.sub(8), 160}}, c.keys, "no key has more than its group")
	for sub, n := range c.parts {
		switch {
		case sub == a.sub(8):
			require.EqualValues(t, 160, n)
		case sub/Parts == a.Home(8):
			require.Zero(t, n)
		default:
			require.EqualValues(t, 10, n)
		}
	}
}

// Plans with a slot more are made beside the plan that they continue, which stays as it is.
func TestBetterLeavesThePlan(t *testing.T) {
	p := zipf(2000, 1, 1)
	table, err := NewTable(0, 8, 8, nil)
	require.NoError(t, err)
	have := Spread(Hash(&Stage{Owners: make([]int, 8), Tasks: 4}), 8)
	cut := &Cut{Table: table, Have: have, Owners: have, Tasks: 4, Load: p.of(table), Fine: p.fine(table, 50, true)}
	c := newCutter(cut)
	require.NotNil(t, c.better())
	require.Equal(t, newCutter(cut), c)
}
