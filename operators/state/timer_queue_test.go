package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

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
	q := newTimerQueue(keys)
	var want, got []pair
	for range n {
		p := pair{int64(r.IntN(3)), r.IntN(4), key()}
		q.add(p.t, p.group, p.key)
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
		at, group, key, ok := q.pop(1 << 40)
		if !ok {
			break
		}
		got = append(got, pair{at, group, key})
	}
	require.Equal(t, want, got)
	require.Zero(t, q.n)
}

func BenchmarkTimers(b *testing.B) {
	for _, n := range []int{100, 10_000, 200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			q := newTimerQueue(serde.Int64)
			for b.Loop() {
				for range n {
					q.add(7, r.IntN(64), 1000+r.Int64N(int64(n)*4))
				}
				for _, _, _, ok := q.pop(7); ok; _, _, _, ok = q.pop(7) {
					continue
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/timer")
		})
	}
}
