package route

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route/sketch"
)

// byChance returns what comes in a second of n items on average: each key's count is drawn, and so is which of them are sampled.
func (p *population) byChance(rng *rand.Rand, t *Table, n, each float64) (items []int64, s sketch.Sample) {
	items = make([]int64, t.Groups+t.Slots)
	l, sum := sketch.NewLoad(t.Groups, Parts), 0.0
	for _, v := range p.loads {
		sum += float64(v)
	}
	for i, k := range p.keys {
		mean := n * float64(p.loads[i]) / sum
		came := int64(max(0, math.Round(mean+math.Sqrt(mean)*rng.NormFloat64())))
		if mean < 10 { // the normal distribution is not near
			came = 0
			for sum := rng.ExpFloat64(); sum < mean; sum += rng.ExpFloat64() {
				came++
			}
		}
		hash := exec.HashKey(k)
		g := t.Group(hash, k)
		items[g] += came
		for range came {
			if g < t.Groups && rng.Float64()*each < 1 {
				l.Add(hash, k)
			}
		}
	}
	return items, l.Sample()
}

// Counts that come at random are evened out within a minute, by the weights, which no one knows; steps end.
func TestSlotsUnderChance(t *testing.T) {
	p := zipf(20_000, 1, 5)
	const tasks, groups, slots = 4, 8, 8
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 3))
		table, err := NewTable(0, groups, slots, nil)
		require.NoError(t, err)
		owners := Spread(Hash(&Stage{Owners: make([]int, groups), Tasks: tasks}), slots)
		c, steps := NewCore(When{Every: 1000, Quiet: 1000}, LeastCount), 0
		degree := func() float64 { return Degree(Tasks(p.of(table), owners, tasks), nil) }
		began := degree()
		for at := range 60 {
			s := &Sample{At: int64(at) * 1000, Owners: owners, Tasks: tasks, Slots: slots, Table: table}
			s.Items, s.Fine = p.byChance(rng, table, 60_000, 128)
			d := c.Next(s)
			if d.Owners == nil {
				continue
			}
			steps++
			if owners = d.Owners; d.Places != nil {
				table, err = NewTable(table.Epoch+1, groups, slots, d.Places)
				require.NoError(t, err)
			}
		}
		t.Logf("seed %d: degree %.4f at first, %.4f after %d steps", seed, began, degree(), steps)
		require.Less(t, began, 0.9)
		require.GreaterOrEqual(t, degree(), 0.979)
		require.LessOrEqual(t, steps, 6)
	}
}
