package policy

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
)

// world carries out the commands of testdata:
//
//	stage 2 tasks 64 groups 2..8 cost 400   begin; a task processes 1000 items a second, a rescale takes 400 ms
//	for 30 rate 1500                        30 s in which 1500 items arrive a second
//	for 600 rate 3000 sine 1500 600         as many and a sine of amplitude 1500 and a period of 600 s
//	for 60 rate 1700 saw 0.1 7              up to a tenth more or less, a sawtooth of 7 s
//	hot 7 0.6                               key group 7 gets 60 % of the items
//	stands 1, moves                         a task stops to process, or processes again
//	shared 2000                             all tasks together process at most 2000 items a second
//	manager                                 another policy takes over, which knows nothing
//
// What the policy says is printed when it says something of the kind for the first time since the
// number of tasks has changed.
type world struct {
	s      *script.Script
	bounds Bounds
	plant  *plant
	policy *Policy
	shared float64
	said   map[string]bool
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) {
		w := &world{s: s}
		return w.do
	})
}

func (w *world) do(f []string) {
	number := func(i int) float64 {
		v, err := strconv.ParseFloat(f[i], 64)
		require.NoError(w.s, err)
		return v
	}
	switch f[0] {
	case "stage":
		_, err := fmt.Sscanf(f[5], "%d..%d", &w.bounds.Min, &w.bounds.Max)
		require.NoError(w.s, err)
		w.plant = newPlant(w.s.Int(f[1]), w.s.Int(f[3]), int64(w.s.Int(f[7])), w.speeds)
		w.policy, w.said = New(w.bounds), map[string]bool{}
	case "hot":
		group, share := w.s.Int(f[1]), number(2)
		for g := range w.plant.weights {
			w.plant.weights[g] = (1 - share) / float64(len(w.plant.weights)-1)
		}
		w.plant.weights[group] = share
		w.plant.weigh()
	case "stands":
		w.plant.stands = w.s.Int(f[1])
	case "moves":
		w.plant.stands = -1
	case "shared":
		w.shared = number(1)
		w.plant.speed = w.speeds(len(w.plant.at))
	case "manager":
		w.policy, w.said = New(w.bounds), map[string]bool{}
	case "for":
		rate := func(int) float64 { return number(3) }
		if len(f) > 4 {
			a, b := number(5), number(6)
			switch f[4] {
			case "sine":
				rate = func(i int) float64 { return number(3) + a*math.Sin(2*math.Pi*float64(i)/b) }
			case "saw":
				rate = func(i int) float64 { return number(3) * (1 + a*(2*math.Mod(float64(i), b)/(b-1)-1)) }
			default:
				w.s.Unknown()
			}
		}
		for i := range w.s.Int(f[1]) {
			w.plant.rate = rate(i)
			w.second()
		}
	default:
		w.s.Unknown()
	}
}

// speeds returns the speeds of tasks.
func (w *world) speeds(n int) (all []float64) {
	for range n {
		v := 1000.0
		if w.shared > 0 {
			v = min(v, w.shared/float64(n))
		}
		all = append(all, v)
	}
	return all
}

// second lets a second pass, and rescales the stage as the policy decides.
func (w *world) second() {
	s := w.plant.second()
	d := w.policy.Next(s)
	n := len(s.Tasks)
	if kind := fmt.Sprint(n, d.Tasks, kindOf(d.Why)); !w.said[kind] {
		w.said[kind] = true
		if d.Tasks == n {
			w.s.Printf("%d s: %d tasks: %s", s.At/1000, n, d.Why)
		} else {
			w.s.Printf("%d s: %d → %d tasks: %s", s.At/1000, n, d.Tasks, d.Why)
		}
	}
	if d.Tasks != n {
		w.plant.rescale(d.Tasks)
		clear(w.said)
	}
}

// kindOf returns a reason without its numbers.
func kindOf(why string) string {
	var b []rune
	for _, r := range why {
		if (r < '0' || r > '9') && r != '.' {
			b = append(b, r)
		}
	}
	return string(b)
}
