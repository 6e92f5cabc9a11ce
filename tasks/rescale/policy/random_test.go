package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const seeds = 40

// drive lets a plant run for some seconds under a policy. rate returns the items that arrive in a
// second.
func drive(t *testing.T, p *plant, policy *Policy, seconds int, rate func(i int) float64) (newest Decision) {
	for i := range seconds {
		p.rate = rate(i)
		s := p.second()
		if newest = policy.Next(s); newest.Tasks != len(s.Tasks) {
			t.Logf("%d s: %d → %d tasks: %s", s.At/1000, len(s.Tasks), newest.Tasks, newest.Why)
			p.rescale(newest.Tasks)
		}
	}
	return newest
}

// each runs a test with plants whose tasks differ by up to a fifth in speed, of 1000 items a second,
// and whose rescales take up to 5 s.
func each(t *testing.T, f func(t *testing.T, rng *rand.Rand, p *plant, policy *Policy)) {
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 60))
			n := 1 + rng.IntN(4)
			p := newPlant(n, 64, rng.Int64N(5000), drawn(rng, 1000))
			f(t, rng, p, New(Bounds{1, 32}))
		})
	}
}

// A load that rises to up to four times what it was, or falls to a fourth, needs at most 3 rescales;
// then the stage has what it needs.
func TestStepLoad(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand, p *plant, policy *Policy) {
		low := 300 + 1500*rng.Float64()
		high := low * (1.5 + 2.5*rng.Float64())
		noise := func(rate float64) func(int) float64 {
			return func(int) float64 { return rate * (0.9 + 0.2*rng.Float64()) }
		}
		drive(t, p, policy, 600, noise(low))
		for _, rate := range []float64{high, low} {
			before := len(p.rescales)
			drive(t, p, policy, 1200, noise(rate))
			require.LessOrEqual(t, len(p.rescales)-before, 3, "rescales from a step of the load to %.0f items/s on", rate)
			for _, task := range p.second().Tasks {
				require.Less(t, task.Lag, 1.0)
			}
		}
		require.LessOrEqual(t, float64(len(p.at)), math.Ceil(low/800*2.5), "the stage became small again")
	})
}

// A sine with a period of 10 min or more, by which the load varies by up to a factor of two, needs at
// most one step out and one step in, in a period, once the stage has found its size.
func TestSine(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand, p *plant, policy *Policy) {
		mean, period := 500+8000*rng.Float64(), 600+1800*rng.Float64()
		swing := mean / 3 * rng.Float64()
		phase := 2 * math.Pi * rng.Float64()
		sine := func(i int) float64 { return mean + swing*math.Sin(phase+2*math.Pi*float64(i)/period) }
		drive(t, p, policy, int(2*period), sine)
		first := len(p.rescales)
		drive(t, p, policy, int(5*period), sine)
		for i := first + 2; i < len(p.rescales); i++ {
			span := float64(p.rescales[i]-p.rescales[i-2]) / 1000
			require.Greater(t, span, 0.99*period, "3 rescales within a period of %.0f s: %v", period, p.rescales)
		}
	})
}

// Once a stage has found its size, a load that changes by up to 15 % from second to second changes
// nothing, wherever the load is.
func TestNoise(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand, p *plant, policy *Policy) {
		mean := 200 + 10_000*rng.Float64()
		noise := func(int) float64 { return mean * (0.85 + 0.3*rng.Float64()) }
		drive(t, p, policy, 1200, noise)
		before := len(p.rescales)
		drive(t, p, policy, 2400, noise)
		require.Equal(t, before, len(p.rescales))
	})
}

// Whatever a policy is told, it stays within its bounds and the number of key groups, and changes by
// at most a factor of two, unless the bounds demand more.
func TestBounds(t *testing.T) {
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 61))
		lowest := 1 + rng.IntN(6)
		b := Bounds{lowest, lowest + rng.IntN(10)}
		groups := b.Min + rng.IntN(10)
		policy, n, now := New(b), 1+rng.IntN(groups), int64(0)
		for range 2000 {
			now += int64(1 + rng.IntN(8000)/(1+rng.IntN(20)))
			s := Sample{At: now, Groups: groups, Rescaling: rng.IntN(50) == 0 || (n < b.Min || n > b.Max) && rng.IntN(2) == 0, Tasks: make([]Task, n)}
			mood := rng.Float64()
			for i := range s.Tasks {
				s.Tasks[i] = Task{In: 1000 * rng.Float64(), Busy: min(1, mood+0.2*rng.Float64()), Lag: 3 * mood * rng.Float64()}
			}
			d := policy.Next(&s)
			require.NotEmpty(t, d.Why)
			if d.Tasks == n {
				continue
			}
			require.False(t, s.Rescaling)
			require.GreaterOrEqual(t, d.Tasks, b.Min)
			require.LessOrEqual(t, d.Tasks, min(b.Max, groups))
			require.True(t, d.Tasks <= 2*n || d.Tasks == b.Min, "%d → %d", n, d.Tasks)
			require.True(t, 2*d.Tasks >= n || d.Tasks == min(b.Max, groups), "%d → %d", n, d.Tasks)
			if n = d.Tasks; rng.IntN(4) == 0 {
				n = 1 + rng.IntN(groups) // another was asked for by hand
			}
		}
	}
}
