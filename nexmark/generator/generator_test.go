package generator

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/nexmark/event"
)

func generator(t testing.TB, cfg Config) *Generator {
	t.Helper()
	g, err := New(cfg)
	require.NoError(t, err)
	return g
}

func TestSameSeedSameBytes(t *testing.T) {
	sum := func(seed uint64, disorder time.Duration) uint64 {
		g := generator(t, Config{Seed: seed, Events: 20_000, Base: DefaultBase, Disorder: disorder})
		var all []byte
		for k := range int64(20_000) {
			all = g.Append(all, k)
		}
		return xxhash.Sum64(all)
	}
	// Golden values: changing these numbers changes every input file that users have generated.
	require.Equal(t, uint64(0xe8c4cdf4805f3219), sum(1, 0))
	require.Equal(t, uint64(0x9f0f9dcea497dd16), sum(2, 0))
	require.Equal(t, uint64(0xbc3a398891f9b8bc), sum(1, 3*time.Second))
}

// The shape of a hundred thousand events, against the description in doc.go.
func TestDistributions(t *testing.T) {
	const n = 200_000
	g := generator(t, Config{Seed: 7, Events: n, Base: DefaultBase})
	var count [3]int
	var size [3]int
	hotAuctions, hotBidders, hotSellers, hotChannels, inFlightSum := 0, 0, 0, 0, 0
	logPrice := 0.0
	var open []int64
	var buf []byte
	for k := range int64(n) {
		buf = g.Append(buf[:0], k)
		raw := event.Raw(buf)
		now := raw.Time()
		require.Equal(t, DefaultBase+k/10, now)
		count[raw.Type()]++
		size[raw.Type()] += len(raw)
		switch raw.Type() {
		case event.TypePerson:
			p, err := event.DecodePerson(raw)
			require.NoError(t, err)
			require.Equal(t, 1000+k/50, p.ID)
			require.Contains(t, states, p.State)
			require.Contains(t, cities, p.City)
			require.Len(t, p.CreditCard, 19)
			require.True(t, strings.HasSuffix(p.Email, ".com"))
		case event.TypeAuction:
			a, err := event.DecodeAuction(raw)
			require.NoError(t, err)
			require.Equal(t, 1000+k/50*3+k%50-1, a.ID)
			require.GreaterOrEqual(t, a.Category, int64(10))
			require.LessOrEqual(t, a.Category, int64(14))
			require.Greater(t, a.Expires, a.Time)
			require.Greater(t, a.Reserve, a.InitialBid)
			if a.Seller == 1000+k/50/100*100 {
				hotSellers++
			}
			open = append(open, a.Expires)
		case event.TypeBid:
			b, err := event.DecodeBid(raw)
			require.NoError(t, err)
			last := k/50*3 + 2
			require.LessOrEqual(t, b.Auction, 1000+last+10)
			if b.Auction == 1000+last/100*100 {
				hotAuctions++
			} else {
				require.GreaterOrEqual(t, b.Auction, 1000+max(0, last-100))
			}
			if b.Bidder == 1001+k/50/100*100 {
				hotBidders++
			}
			if !strings.HasPrefix(b.Channel, "channel-") {
				hotChannels++
			}
			require.GreaterOrEqual(t, b.Price, int64(100))
			require.LessOrEqual(t, b.Price, int64(100_000_000))
			logPrice += math.Log10(float64(b.Price) / 100)
		}
		if k%1000 == 0 && k >= n/2 {
			for _, e := range open {
				if e >= now {
					inFlightSum++
				}
			}
		}
	}
	require.Equal(t, [3]int{n / 50, n / 50 * 3, n / 50 * 46}, count)
	require.InEpsilon(t, 200, size[0]/count[0], 0.03)
	require.InEpsilon(t, 500, size[1]/count[1], 0.03)
	require.InEpsilon(t, 100, size[2]/count[2], 0.03)
	require.InDelta(t, 0.50, float64(hotAuctions)/float64(count[2]), 0.02)
	require.InDelta(t, 0.75, float64(hotBidders)/float64(count[2]), 0.02)
	require.InDelta(t, 0.75, float64(hotSellers)/float64(count[1]), 0.02)
	require.InDelta(t, 0.50, float64(hotChannels)/float64(count[2]), 0.02)
	require.InDelta(t, 3.0, logPrice/float64(count[2]), 0.02, "the logarithm is uniform in 0 … 6")
	require.InDelta(t, 100, float64(inFlightSum)/(n/2/1000), 10)
}

// Partitions divide the events among them: none twice, none missing, and each partition's times
// rise.
func TestPartitionsShareOneIDSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "partitions")
		events := rapid.Int64Range(0, 2000).Draw(t, "events")
		seen := make([]bool, events)
		for p := range n {
			before := int64(-1)
			for j := range Share(p, n, events) {
				k := Arrival(p, n, j)
				require.Greater(t, k, before)
				require.Less(t, k, events)
				require.False(t, seen[k])
				seen[k], before = true, k
			}
		}
		require.NotContains(t, seen, false)
	})
}

// With disorder the events are the same, and none comes later than allowed.
func TestDisorderIsBoundedAndLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Seed: rapid.Uint64().Draw(t, "seed"), Events: rapid.Int64Range(1, 3000).Draw(t, "events"), Rate: rapid.Int64Range(100, 2000).Draw(t, "rate")}
		ordered, err := New(cfg)
		require.NoError(t, err)
		cfg.Disorder = time.Duration(rapid.IntRange(1, 3000).Draw(t, "disorder")) * time.Millisecond
		mixed, err := New(cfg)
		require.NoError(t, err)
		left := map[string]int{}
		newest := int64(math.MinInt64)
		for k := range cfg.Events {
			left[string(ordered.Append(nil, k))]++
			raw := event.Raw(mixed.Append(nil, k))
			left[string(raw)]--
			newest = max(newest, raw.Time())
			require.LessOrEqual(t, newest-raw.Time(), cfg.Disorder.Milliseconds())
		}
		for _, n := range left {
			require.Zero(t, n)
		}
	})
	g := generator(t, Config{Rate: 1000, Disorder: time.Second})
	late := 0
	newest := int64(0)
	for k := range int64(10_000) {
		at := event.Raw(g.Append(nil, k)).Time()
		if at < newest {
			late++
		}
		newest = max(newest, at)
	}
	require.Greater(t, late, 8000, "it is disorder, not a few swaps")
}

func TestPermuteIsAPermutation(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 4, 5, 100, 1023, 1024, 1025} {
		seen := make([]bool, n)
		for i := range n {
			j := Permute(i, n, 99)
			require.Less(t, j, n)
			require.False(t, seen[j])
			seen[j] = true
		}
	}
}

func TestPriceTable(t *testing.T) {
	require.Equal(t, int64(100), price(0))
	require.InDelta(t, 100_000_000, price(math.MaxUint64), 100)
	for i := range uint64(1 << 16) {
		x := i<<48 | 0x7fff_ffff_ffff
		want := math.Pow(10, 6*float64(x)/(1<<64)) * 100
		require.InDelta(t, want, price(x), 1+want*3e-5)
	}
}

// In a surge events come at its rate, before and behind it at the other one.
func TestSurge(t *testing.T) {
	g := generator(t, Config{Seed: 1, Rate: 1000, Base: DefaultBase, Surge: Surge{At: 2 * time.Second, For: 3 * time.Second, Rate: 4000}})
	perSecond := map[int64]int{}
	last := int64(0)
	for k := range int64(18_000) {
		at := g.Due(k) - DefaultBase
		require.GreaterOrEqual(t, at, last)
		last = at
		perSecond[at/1000]++
	}
	require.Equal(t, map[int64]int{0: 1000, 1: 1000, 2: 4000, 3: 4000, 4: 4000, 5: 1000, 6: 1000, 7: 1000, 8: 1000}, perSecond)
}

func TestBadSettingsAreRefused(t *testing.T) {
	for _, c := range []Config{{Events: -1}, {Rate: -1}, {Rate: 2e9}, {Base: event.MaxMillis + 1}, {Surge: Surge{At: -1, For: 1, Rate: 1}}, {Surge: Surge{For: 1}}, {Disorder: -1}, {Disorder: 48 * time.Hour}} {
		_, err := New(c)
		require.Error(t, err)
	}
}

func BenchmarkAppend(b *testing.B) {
	for name, disorder := range map[string]time.Duration{"ordered": 0, "disorder": 3 * time.Second} {
		b.Run(name, func(b *testing.B) {
			g := generator(b, Config{Seed: 1, Base: DefaultBase, Disorder: disorder})
			buf := make([]byte, 0, 1<<20)
			k, total := int64(0), int64(0)
			b.ReportAllocs()
			for b.Loop() {
				if len(buf) > 1<<20-2048 {
					total += int64(len(buf))
					buf = buf[:0]
				}
				buf = g.Append(buf, k)
				k++
			}
			b.ReportMetric(float64(total+int64(len(buf)))/float64(k), "B/event")
			b.ReportMetric(float64(k)/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}

// TestTimesAreQuotients: the correction in at makes the estimate exact, whatever the rate.
func TestTimesAreQuotients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, 1e9).Draw(t, "rate")
		g, err := New(Config{Rate: rate, Base: DefaultBase})
		require.NoError(t, err)
		k := rapid.Int64Range(0, 9e15).Draw(t, "k") // times 1000 still fits
		if rapid.Bool().Draw(t, "on the edge") {    // of a millisecond
			k = (k%(1<<33)*rate + rapid.SampledFrom([]int64{0, 999}).Draw(t, "up")) / 1000
		}
		require.Equal(t, DefaultBase+k*1000/rate, g.at(k))
	})
}
