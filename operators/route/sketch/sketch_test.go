package sketch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
)

// The bounds of each key hold against a map that counts all, over items of any weights, fading and resets, for one sketch and
// for several together.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(1, 12).Draw(t, "counters")
		keys := rapid.IntRange(1, 40).Draw(t, "keys")
		sketches := rapid.IntRange(1, 4).Draw(t, "sketches")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var all []Sample
		right, total := map[string]float64{}, 0.0
		for range sketches {
			s, mine, n := New(m), map[string]float64{}, 0.0
			for range rng.IntN(300) {
				switch k := rng.IntN(1 + rng.IntN(keys)); {
				case rng.IntN(100) == 0:
					s.Fade(0.5)
					n /= 2
					for k := range mine {
						mine[k] /= 2
					}
				case rng.IntN(200) == 0:
					s.Reset()
					clear(mine)
					n = 0
				default:
					key := fmt.Sprint(k)
					hash := exec.HashKey([]byte(key)) % 5 // keys share a hash
					w := float64(1 + rng.IntN(3))
					s.Add(hash, []byte(key), w)
					mine[key] += w
					n += w
				}
			}
			bounded(t, s.Counts(), s.Missed(), mine)
			require.InDelta(t, n, s.Total(), 1e-6)
			require.LessOrEqual(t, s.Missed(), n/float64(m)+1e-6)
			require.LessOrEqual(t, len(s.Counts()), m)
			for k, v := range mine {
				right[k] += v
			}
			all, total = append(all, Sample{Keys: s.Counts(), Missed: s.Missed()}), total+n
		}
		both := Sum(all...)
		bounded(t, both.Keys, both.Missed, right)
		require.LessOrEqual(t, both.Missed, total/float64(m)+1e-6)
	})
}

// bounded checks what is known of keys against what is right.
func bounded(t require.TestingT, counts []Count, missed float64, right map[string]float64) {
	const tiny = 1e-6
	known := map[string]bool{}
	for i, c := range counts {
		known[c.Key] = true
		require.LessOrEqual(t, c.Sure(), right[c.Key]+tiny, c.Key)
		require.GreaterOrEqual(t, c.Count, right[c.Key]-tiny, c.Key)
		require.LessOrEqual(t, c.Over, missed+tiny, c.Key)
		require.True(t, i == 0 || c.Count <= counts[i-1].Count)
	}
	require.Len(t, known, len(counts))
	for k, v := range right {
		if !known[k] {
			require.LessOrEqual(t, v, missed+tiny, k)
		}
	}
}

// With as many counters as keys, a sketch is exact.
func TestExact(t *testing.T) {
	s := New(4)
	for i := range 100 {
		s.Add(uint64(i%4)<<3, []byte{byte(i % 4)}, float64(i%4))
	}
	for _, c := range s.Counts() {
		require.Equal(t, 25*float64(c.Key[0]), c.Count)
		require.Zero(t, c.Over)
	}
	s.Add(9, make([]byte, MostKey+1), 1e9)
	require.Len(t, s.Counts(), 4)
	require.Equal(t, 150.0, s.Total())
}

// The sum of the loads of tasks is the load of all items: sub-groups exactly, keys within their bounds.
func TestSum(t *testing.T) {
	const groups, subs = 8, 16
	rng := rand.New(rand.NewPCG(1, 2))
	parts := make([]float64, groups*subs)
	loads := []*Load{NewLoad(groups, subs), NewLoad(groups, subs)}
	right := map[string]float64{}
	for range 20_000 {
		key := binary.BigEndian.AppendUint64(nil, uint64(math.Exp(rng.Float64()*7)))
		hash := exec.HashKey(key)
		loads[rng.IntN(2)].Add(hash, key)
		parts[exec.GroupOf(hash, groups)*subs+exec.SubGroupOf(hash, groups, subs)]++
		right[string(key)]++
	}
	s := Sum(loads[0].Sample(), loads[1].Sample())
	require.Equal(t, parts, s.Parts)
	bounded(t, s.Keys, s.Missed, right)
	require.LessOrEqual(t, s.Missed, 20_000.0/counters)
	loads[0].Fade(HalfLife)
	loads[1].Reset()
	half := Sum(loads[0].Sample(), loads[1].Sample())
	require.Less(t, len(half.Keys), len(s.Keys))
	require.InDelta(t, loads[0].Keys.Total(), sum(half.Parts), 1e-6)
	require.Empty(t, Sum().Parts)
}

func sum(all []float64) (n float64) {
	for _, v := range all {
		n += v
	}
	return n
}

// Keys that come and go allocate nothing.
func TestAddAllocatesNothing(t *testing.T) {
	l, keys := NewLoad(64, 16), benchKeys()
	for _, k := range keys {
		l.Add(exec.HashKey(k), k)
	}
	i := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		k := keys[i%len(keys)]
		l.Add(exec.HashKey(k), k)
		i++
	}))
}

// benchKeys returns keys of Zipf weights.
func benchKeys() (keys [][]byte) {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, 1<<20)
	for range 1 << 14 {
		keys = append(keys, binary.BigEndian.AppendUint64(nil, z.Uint64()))
	}
	return keys
}

func BenchmarkAdd(b *testing.B) {
	l, keys := NewLoad(64, 16), benchKeys()
	var hashes []uint64
	for _, k := range keys {
		hashes = append(hashes, exec.HashKey(k))
	}
	b.ReportAllocs()
	for i := range b.N {
		l.Add(hashes[i&(len(keys)-1)], keys[i&(len(keys)-1)])
	}
}
