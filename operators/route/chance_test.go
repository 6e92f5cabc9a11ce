package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// counted plays seconds of a stage whose key groups have weights, and items that come at random, so many a
// second. It returns the number of steps and the owners at the end.
func counted(seed uint64, weights []float64, owners []int, tasks, rate, seconds int, w When) (steps int, _ []int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	sum := 0.0
	for _, v := range weights {
		sum += v
	}
	core := NewCore(w, LeastCount)
	for at := range int64(seconds) {
		s := &Sample{At: at * 1000, Items: make([]int64, len(weights)), Owners: owners, Tasks: tasks}
		for g, v := range weights {
			mean := float64(rate) * v / sum
			s.Items[g] = max(int64(mean+math.Sqrt(mean)*rng.NormFloat64()), 0)
		}
		if d := core.Next(s); d.Owners != nil {
			owners, steps = d.Owners, steps+1
		}
	}
	return steps, owners
}

// Normal values lie apart as tables of quality control say (d2), and their range varies by no more than apartBy.
func TestApart(t *testing.T) {
	for n, want := range map[int]float64{1: 0, 2: 1.128, 3: 1.693, 5: 2.326, 10: 3.078, 25: 3.931} {
		require.InDelta(t, want, apart(n), 0.0006, "%d values", n)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 3, 4, 64} {
		const times = 20_000
		sum, squares := 0.0, 0.0
		for range times {
			least, most := math.Inf(1), math.Inf(-1)
			for range n {
				v := rng.NormFloat64()
				least, most = min(least, v), max(most, v)
			}
			sum, squares = sum+most-least, squares+(most-least)*(most-least)
		}
		mean := sum / times
		require.InDelta(t, apart(n), mean, 0.03, "%d values", n)
		require.LessOrEqual(t, math.Sqrt(squares/times-mean*mean), apartBy+0.01, "%d values", n)
	}
}

// Groups of equal weights stay where they are, although the counts of a few seconds differ by chance.
func TestChanceMovesNothing(t *testing.T) {
	weights := make([]float64, 256)
	for g := range weights {
		weights[g] = 1
	}
	for tasks, least := range map[int]int{2: 4_000, 8: 33_000, 32: 200_000} { // below these rates 0.05 may be chance
		for _, rate := range []int{least, 5 * least} {
			for seed := range uint64(5) {
				steps, _ := counted(seed, weights, Hash(&Stage{Owners: make([]int, 256), Tasks: tasks}), tasks, rate, 200, When{Below: 0.999, Quiet: 1000})
				require.Zero(t, steps, "%d tasks, %d items/s, seed %d", tasks, rate, seed)
			}
		}
	}
}

// Where there are enough items, a degree that is only a little too low is improved: by the weights, which no
// one knows, eight tasks end above 0.98, and moves stop.
func TestSteadyLoadIsEvenedOut(t *testing.T) {
	for _, zipf := range []float64{0, 0.4, 0.8} {
		t.Run(fmt.Sprint(zipf), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 7))
			weights := make([]float64, 256)
			for i := range 3000 {
				weights[rng.IntN(256)] += math.Pow(float64(i+1), -zipf)
			}
			for seed := range uint64(5) {
				steps, owners := counted(seed, weights, Hash(&Stage{Owners: make([]int, 256), Tasks: 8}), 8, 200_000, 60, When{Below: 0.985})
				scaled := make([]int64, len(weights))
				for g, v := range weights {
					scaled[g] = int64(v * 1e6)
				}
				d := Degree(Tasks(scaled, owners, 8), nil)
				t.Logf("seed %d: %d steps, degree %.4f", seed, steps, d)
				require.GreaterOrEqual(t, d, 0.983)
				require.LessOrEqual(t, steps, 3)
			}
		})
	}
}
