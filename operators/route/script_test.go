package route

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route/sketch"
)

// world carries out the commands of testdata:
//
//	stage 4 tasks 64 groups below 0.9   begin, with the owners of a new job; or every 20000 (ms), items 100000, off
//	dispatch least-count                of another planner; with least-key of a core for keys
//	keys-in-state 100000 1.1            so many keys are in the groups, by Zipf weights; nothing: they were not counted
//	zipf 1.1 turn 2                     group weights: a random order for each turn
//	even                                all groups have the same weight
//	hot 7 0.6                           key group 7 gets 60 % of the items
//	shares 3 1 1 1                      of the tasks
//	bytes 1000000000                    of state
//	slots 8                             parts of groups can be placed in so many
//	keys 5000 zipf 1.1 turn 2           the loads are those of keys, in a random order for each turn
//	busy, idle                          key groups are moving; they are not
//	for 30 rate 10000                   30 s in which so many items come each second
//	flip 10 for 60 rate 10000           the weights change places between the first and the second half of the groups every 10 s
//
// A step is carried out at once. What else the core says is printed when it is of another kind than
// before.
type world struct {
	s       *script.Script
	when    When
	core    *Core
	weights []float64
	keys    *population // with slots
	total   float64     // of its loads
	sample  Sample
	said    string
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) {
		w := &world{s: s}
		return w.do
	})
}

func (w *world) number(word string) float64 {
	v, err := strconv.ParseFloat(word, 64)
	require.NoError(w.s, err)
	return v
}

func (w *world) do(f []string) {
	switch f[0] {
	case "stage":
		w.sample = Sample{Tasks: w.s.Int(f[1]), Owners: make([]int, w.s.Int(f[3]))}
		w.sample.Owners = Hash(&Stage{Owners: w.sample.Owners, Tasks: w.sample.Tasks})
		switch f[5] {
		case "below":
			w.when = When{Below: w.number(f[6])}
		case "every":
			w.when = When{Every: int64(w.s.Int(f[6]))}
		case "items":
			w.when = When{Items: int64(w.s.Int(f[6]))}
		case "off":
			w.when = When{}
		default:
			w.s.Unknown()
		}
		w.core, w.weights = NewCore(w.when, LeastCount), make([]float64, len(w.sample.Owners))
		w.even()
	case "slots":
		n := w.s.Int(f[1])
		table, err := NewTable(0, len(w.sample.Owners), n, nil)
		require.NoError(w.s, err)
		w.sample.Owners, w.sample.Slots, w.sample.Table = Spread(w.sample.Owners, n), n, table
	case "keys":
		w.keys, w.total = zipf(w.s.Int(f[1]), w.number(f[3]), uint64(w.s.Int(f[5]))), 0
		for _, l := range w.keys.loads {
			w.total += float64(l)
		}
	case "dispatch":
		plan, err := ByName(f[1])
		require.NoError(w.s, err)
		if w.core = NewCore(w.when, plan); f[1] == "least-key" {
			w.core.ForKeys()
		}
	case "keys-in-state":
		if w.sample.Keys = nil; len(f) == 1 {
			break
		}
		w.sample.Keys = make([]int64, len(w.sample.Owners))
		for g, part := range zipfWeights(len(w.sample.Keys), w.number(f[2])) {
			w.sample.Keys[g] = int64(w.number(f[1]) * part)
		}
	case "zipf":
		parts := zipfWeights(len(w.weights), w.number(f[1]))
		for i, g := range rand.New(rand.NewPCG(uint64(w.s.Int(f[3])), 1)).Perm(len(w.weights)) {
			w.weights[g] = parts[i]
		}
	case "even":
		w.even()
	case "hot":
		g, share := w.s.Int(f[1]), w.number(f[2])
		for i := range w.weights {
			w.weights[i] *= (1 - share) / (1 - w.weights[g])
		}
		w.weights[g] = share
	case "shares":
		for _, v := range f[1:] {
			w.sample.Shares = append(w.sample.Shares, w.number(v))
		}
	case "bytes":
		w.sample.Bytes = int64(w.s.Int(f[1]))
	case "busy", "idle":
		w.sample.Busy = f[0] == "busy"
	case "for":
		for range w.s.Int(f[1]) {
			w.second(w.number(f[3]))
		}
	case "flip":
		half := len(w.weights) / 2
		for i := range w.s.Int(f[3]) {
			if i%w.s.Int(f[1]) == 0 {
				for g := range half {
					w.weights[g], w.weights[g+half] = w.weights[g+half], w.weights[g]
				}
			}
			w.second(w.number(f[5]))
		}
	default:
		w.s.Unknown()
	}
}

// zipfWeights returns weights that fall, of the sum 1.
func zipfWeights(n int, s float64) []float64 {
	all, sum := make([]float64, n), 0.0
	for i := range all {
		all[i] = math.Pow(float64(i+1), -s)
		sum += all[i]
	}
	for i := range all {
		all[i] /= sum
	}
	return all
}

func (w *world) even() {
	for g := range w.weights {
		w.weights[g] = 1 / float64(len(w.weights))
	}
}

// second lets a second pass.
func (w *world) second(rate float64) {
	w.sample.At += 1000
	w.sample.Items = make([]int64, len(w.weights))
	for g, part := range w.weights {
		w.sample.Items[g] = int64(rate * part)
	}
	if w.keys != nil {
		w.sampled(rate)
	}
	s := w.sample
	d := w.core.Next(&s)
	at := s.At / 1000
	if d.Owners == nil {
		kind := strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, d.Why)
		if kind != w.said {
			w.s.Printf("%d s: degree %.2f: %s", at, d.Degree, d.Why)
		}
		w.said = kind
		return
	}
	require.Len(w.s, d.ByTask, s.Tasks)
	require.True(w.s, complete(d.Owners, s.Tasks))
	w.s.Printf("%d s: degree %.2f, extra %.2f: %d key groups move for a degree of %.2f", at, d.Degree, d.Extra, Moved(s.Owners, d.Owners), d.Planned)
	w.sample.Owners, w.said = d.Owners, ""
	if d.Places == nil {
		return
	}
	next, err := NewTable(s.Table.Epoch+1, s.Table.Groups, s.Table.Slots, d.Places)
	require.NoError(w.s, err)
	for _, c := range Diff(s.Table, next) {
		w.s.Printf("  %v: from %d to %d of task %d", c.Part, c.From, c.To, d.Owners[c.To])
	}
	w.s.Printf("  %d of %d slots are used", len(d.Places), s.Slots)
	w.sample.Table = next
}

// sampled makes the items of a second of keys, and what is known of them.
func (w *world) sampled(rate float64) {
	t := w.sample.Table
	w.sample.Items, w.sample.Fine = make([]int64, t.Groups+t.Slots), sketch.Sample{Parts: make([]float64, t.Groups*Parts)}
	for i, k := range w.keys.keys {
		hash, n := exec.HashKey(k), rate*float64(w.keys.loads[i])/w.total
		g := t.Group(hash, k)
		if w.sample.Items[g] += int64(n * 1000); g < t.Groups {
			w.sample.Fine.Parts[g*Parts+exec.SubGroupOf(hash, t.Groups, Parts)] += n
			w.sample.Fine.Keys = append(w.sample.Fine.Keys, sketch.Count{Key: string(k), Hash: hash, Count: n})
		}
	}
	for g := range w.sample.Items {
		w.sample.Items[g] /= 1000
	}
	slices.SortFunc(w.sample.Fine.Keys, func(a, b sketch.Count) int { return cmp.Compare(b.Count, a.Count) })
	w.sample.Fine.Keys = w.sample.Fine.Keys[:min(256, len(w.sample.Fine.Keys))]
}
