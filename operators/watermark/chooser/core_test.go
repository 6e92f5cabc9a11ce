package chooser

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/internal/script"
)

// world carries out the commands of testdata:
//
//	stage budget 1000000 bytes 100 delay 0 task          begin; or key 512: keys have clocks with that delay
//	tasks 2 keys 5000                                      of each task
//	disorder task 4000 key 10                              the items of a task are up to so many ms behind; of a key
//	held 4000 gap 20                                       50 promises a second are so many ms behind; items of a key come so often
//	far 300 1 of 5000                                      few items of keys are further behind
//	late 7                                                 so many items a second are late by their key
//	for 30 rate 10000                                      30 s in which so many items come each second, a 64th of keys that are measured
//	flap 4 for 60 rate 10000                               the same, and every 4 s the items are in order, or not
//
// A change is printed, and what else is said if it differs from before in more than numbers.
type world struct {
	s              *script.Script
	c              *Core
	r              *rand.Rand
	at             int64
	tasks, keys    int
	task, key, far int64
	held, gap      int64
	one            int
	late           int
	have           Choice
	said           string
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) {
		w := &world{s: s, r: rand.New(rand.NewPCG(1, 2)), tasks: 1}
		return w.do
	})
}

func (w *world) do(f []string) {
	n := func(i int) int { return w.s.Int(f[i]) }
	switch f[0] {
	case "stage":
		if f[7] == "key" {
			w.have = Choice{PerKey: true, Delay: int64(n(8))}
		}
		w.c = New(Limits{Budget: int64(n(2)), Bytes: int64(n(4)), Delay: int64(n(6))}, w.have)
	case "tasks":
		w.tasks, w.keys = n(1), n(3)
	case "disorder":
		w.task, w.key, w.one = int64(n(2)), int64(n(4)), 0
	case "held":
		w.held, w.gap = int64(n(1)), int64(n(3))
	case "far":
		w.far, w.one = int64(n(1)), n(4)
	case "late":
		w.late = n(1)
	case "for":
		for range n(1) {
			w.second(n(3), w.task)
		}
	case "flap":
		for i := range n(3) {
			task := w.task
			if i/n(1)%2 == 0 {
				task = w.key
			}
			w.second(n(5), task)
		}
	default:
		w.s.Unknown()
	}
}

func (w *world) second(rate int, task int64) {
	w.at += 1000
	ms := make([]Measured, w.tasks)
	for i := range ms {
		m := &ms[i]
		m.Keys = w.keys
		for range 50 {
			m.Held.Add(w.held)
		}
		for k := range rate / w.tasks {
			if k%64 == 0 {
				m.Gap.Add(w.gap/2 + w.r.Int64N(w.gap+1))
			}
			m.Task.Add(w.r.Int64N(task + 1))
			switch {
			case k%64 > 0:
			case w.one > 0 && k/64%w.one == 0:
				m.Key.Add(w.far)
			default:
				m.Key.Add(w.r.Int64N(w.key + 1))
			}
		}
	}
	ms[0].LateByKey = uint64(w.late)
	next, why := w.c.Next(w.at, ms)
	kind := string(slices.DeleteFunc([]byte(why), func(b byte) bool { return b >= '0' && b <= '9' }))
	if next != w.have {
		w.s.Printf("%d s: %v: %s", w.at/1000, next, why)
	} else if kind != w.said {
		w.s.Printf("%d s: stays: %s", w.at/1000, why)
	}
	w.have, w.said = next, kind
}

// Exceeded is at most twice the exact number, and not less.
func TestDisorderIsASort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		behind := rapid.SliceOfN(rapid.Int64Range(-5, 1<<20), 1, 200).Draw(t, "behind")
		n := rapid.Uint64Range(1, 300).Draw(t, "n")
		var d, other Disorder
		for i, b := range behind {
			if i%2 == 0 {
				d.Add(b)
			} else {
				other.Add(b)
			}
		}
		d.Merge(&other)
		require.EqualValues(t, len(behind), d.Items())
		got := d.Exceeded(n)
		slices.Sort(behind)
		left := len(behind) / int(n)
		if most := behind[max(len(behind)-1-left, 0)]; left < len(behind) && most > 0 {
			require.Greater(t, got, most)
			require.LessOrEqual(t, got, 2*most)
		} else {
			require.Zero(t, got)
		}
	})
}

// The promises of a Core, whatever the data: it is silent behind a change, never takes more memory than it
// may, and the delay is never below what the author said, nor below what nearly all samples need.
func TestPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{Delay: rapid.Int64Range(0, 100).Draw(t, "delay"), Budget: 1000 * 100, Bytes: 100}
		c, have, changed, at := New(l, Choice{}), Choice{}, int64(-silence), int64(0)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range 120 {
			at += 1000
			m := Measured{Keys: r.IntN(1500)}
			task, key := int64(1)<<r.IntN(14), int64(1)<<r.IntN(9)
			for range 300 {
				m.Task.Add(r.Int64N(task))
				m.Key.Add(r.Int64N(key))
			}
			next, why := c.Next(at, []Measured{m})
			require.NotEmpty(t, why)
			if next == have {
				continue
			}
			require.GreaterOrEqual(t, at-changed, int64(silence))
			if next.PerKey {
				require.LessOrEqual(t, int64(m.Keys)*l.Bytes, l.Budget)
				require.GreaterOrEqual(t, next.Delay, l.Delay)
				require.GreaterOrEqual(t, next.Delay, c.key.Exceeded(delayShare))
			}
			have, changed = next, at
		}
	})
}

// A plant whose sources turn from in step to 4 s apart, and back: the choice is the better one within 15 s of
// the end of the silence, for any seed.
func TestFollows(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		c, at := New(Limits{Budget: 1 << 20, Bytes: 100}, Choice{}), int64(0)
		for turn := range 4 {
			apart := int64(turn % 2 * 4000)
			var got Choice
			for range 60 {
				at += 1000
				var m Measured
				newest, newestOf := int64(0), [16]int64{}
				m.Keys = len(newestOf)
				for i := range 4000 { // keys 0–7 come from a source that is behind
					k := r.IntN(len(newestOf))
					t := int64(i)/4 + 10_000 - r.Int64N(8)
					if k < 8 {
						t -= apart
					}
					m.Task.Add(newest - t)
					if k < 4 || k > 13 {
						m.Key.Add(newestOf[k] - t)
					}
					newest, newestOf[k] = max(newest, t), max(newestOf[k], t)
				}
				got, _ = c.Next(at, []Measured{m})
			}
			require.Equal(t, apart > 0, got.PerKey, "seed %d, turn %d", seed, turn)
			if got.PerKey {
				require.LessOrEqual(t, got.Delay, int64(32))
			}
		}
	}
}
