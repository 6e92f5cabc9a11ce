package timerqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/serde"
)

// Timers are returned by time, then by the encodings of their keys, then by group, each once,
// whichever way a bucket was sorted: few and many, short keys and long ones, with equal first
// bytes.
func TestTimersComeInOrder(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(20)*r.IntN(300)
		t.Run(fmt.Sprintf("numbers/%d", n), func(t *testing.T) {
			span := int64(1) << (1 + r.IntN(62))
			checkTimers(t, r, n, serde.Int64, func() int64 { return r.Int64N(span) - span/2 })
		})
		t.Run(fmt.Sprintf("strings/%d", n), func(t *testing.T) {
			prefix := []string{"", "customer-"}[r.IntN(2)]
			checkTimers(t, r, n, serde.String, func() string { return prefix + fmt.Sprint(r.IntN(1+n)) })
		})
	}
}

func checkTimers[K comparable](t *testing.T, r *rand.Rand, n int, keys serde.Serde[K], key func() K) {
	type pair struct {
		t     int64
		group int
		key   K
	}
	q := New(4, keys)
	var want, got []pair
	for range n {
		p := pair{int64(r.IntN(3)), r.IntN(4), key()}
		q.Add(p.t, p.group, p.key)
		want = append(want, p)
	}
	slices.SortFunc(want, func(x, y pair) int {
		switch a, b := keys.Append(nil, &x.key), keys.Append(nil, &y.key); {
		case x.t != y.t:
			return int(x.t - y.t)
		case string(a) < string(b):
			return -1
		case string(a) > string(b):
			return 1
		}
		return x.group - y.group
	})
	want = slices.Compact(want)
	for {
		at, group, key, ok := q.Pop(1 << 40)
		if !ok {
			break
		}
		got = append(got, pair{at, group, key})
	}
	require.Equal(t, want, got)
	require.Zero(t, q.n)
}

// The timers of a group that has moved away do not fire, those of its next stay do, and they take no
// room for ever.
func TestTimersOfAGroupThatMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const groups = 3
		type pair struct {
			t   int64
			key int64
			g   int
		}
		q := New(groups, serde.Int64)
		want := map[pair]bool{}
		now := int64(0)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			g := rapid.IntRange(0, groups-1).Draw(t, "group")
			switch rapid.IntRange(0, 19).Draw(t, "do") {
			case 0:
				q.DropGroup(g)
				for p := range want {
					if p.g == g {
						delete(want, p)
					}
				}
				require.LessOrEqual(t, q.void, q.n/2)
			case 1, 2:
				now += 2
				var due []pair
				for {
					if at, ok := q.Peek(); !ok || at > now {
						break
					}
					if at, g, key, ok := q.Pop(now); ok {
						due = append(due, pair{at, key, g})
					}
				}
				require.True(t, slices.IsSortedFunc(due, func(a, b pair) int { return int(a.t - b.t) }))
				for _, p := range due {
					require.True(t, want[p], "%+v", p)
					delete(want, p)
				}
				for p := range want {
					require.Greater(t, p.t, now)
				}
			default:
				p := pair{now + 1 + rapid.Int64Range(0, 5).Draw(t, "in"), rapid.Int64Range(0, 5).Draw(t, "key"), g}
				if !want[p] {
					q.Add(p.t, p.g, p.key)
					want[p] = true
				}
			}
		}
		require.Equal(t, len(want), q.n-q.void)
	})
}

func BenchmarkTimers(b *testing.B) {
	for _, n := range []int{100, 10_000, 200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			q := New(64, serde.Int64)
			for b.Loop() {
				for range n {
					q.Add(7, r.IntN(64), 1000+r.Int64N(int64(n)*4))
				}
				for _, _, _, ok := q.Pop(7); ok; _, _, _, ok = q.Pop(7) {
					continue
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/timer")
		})
	}
}
