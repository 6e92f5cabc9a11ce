package watermark_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/watermark"
)

// isBoundary tries all windows: does one end at t, or its lateness?
func isBoundary(b watermark.Boundaries, t int64) bool {
	for end := b.End - 1000*b.Every; end <= t; end += b.Every {
		if end == t || end+b.Lateness == t {
			return true
		}
	}
	return false
}

// Boundaries are those that a search finds.
func TestBoundaries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := watermark.Boundaries{
			End: rapid.Int64Range(1, 20).Draw(t, "end"), Every: rapid.Int64Range(1, 12).Draw(t, "every"),
			Lateness: rapid.Int64Range(0, 30).Draw(t, "lateness"),
		}
		at := rapid.Int64Range(-100, 100).Draw(t, "at")
		after := at + 1
		for !isBoundary(b, after) {
			after++
		}
		reached := at
		for !isBoundary(b, reached) {
			reached--
		}
		require.Equal(t, after, b.After(at))
		require.Equal(t, reached, b.Reached(at))
	})
}

// A clock whose Own is set back to the last boundary at any item, as after a restart, tells of each item
// what a fold over all items before it tells: which boundaries the key's time has reached.
func TestClockIsAFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := watermark.Boundaries{End: 10, Every: rapid.SampledFrom([]int64{3, 10}).Draw(t, "every"), Lateness: rapid.SampledFrom([]int64{0, 4}).Draw(t, "lateness")}
		delay := rapid.SampledFrom([]int64{0, 2, 7}).Draw(t, "delay")
		items := rapid.SliceOfN(rapid.Int64Range(-50, 50), 1, 60).Draw(t, "items")
		c, w := watermark.New(), int64(exec.MinTime)
		for i, x := range items {
			own := int64(math.MinInt64)
			for _, before := range items[:i] {
				own = max(own, before-delay)
			}
			for at := int64(-80); at <= 80; at++ {
				if isBoundary(b, at) {
					require.Equal(t, at <= max(own, w), at <= c.At(w), "item %d: boundary %d", i, at)
				}
			}
			if c.Move(x, delay) {
				c.Next = b.After(c.Own)
			}
			require.Greater(t, c.Next, c.Own)
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				reached := b.Reached(c.Own)
				c = watermark.New()
				c.Own, c.Next = reached, b.After(reached)
			}
			if rapid.IntRange(0, 4).Draw(t, "advance") == 0 {
				w = max(w, rapid.Int64Range(-50, 50).Draw(t, "w"))
			}
		}
	})
}

// FuzzClock: whatever the times, a clock does not go back, and the boundaries around it are around it.
func FuzzClock(f *testing.F) {
	f.Add(int64(5), int64(0), int64(10), int64(3), int64(0))
	f.Add(int64(math.MinInt64), int64(1), int64(1), int64(1), int64(0))
	f.Add(int64(math.MaxInt64), int64(0), int64(1<<40), int64(1<<40), int64(1<<40))
	f.Fuzz(func(t *testing.T, at, delay, end, every, lateness int64) {
		const most = 1 << 50
		b := watermark.Boundaries{End: end % most, Every: every % most, Lateness: lateness % most}
		if delay < 0 || b.Every < 1 || b.Lateness < 0 || b.End < 1 {
			return
		}
		c := watermark.New()
		for _, x := range []int64{at, at / 2, -at, 0, at} {
			own := c.Own
			reached := c.Move(x, delay)
			require.GreaterOrEqual(t, c.Own, own)
			require.LessOrEqual(t, c.Own, max(own, x))
			if reached {
				c.Next = b.After(c.Own)
			}
			if -1<<60 < c.Own && c.Own < 1<<60 {
				require.Less(t, c.Own, b.After(c.Own))
				require.LessOrEqual(t, b.Reached(c.Own), c.Own)
				require.Equal(t, b.After(c.Own), b.After(b.Reached(c.Own)))
			}
		}
	})
}

// BenchmarkClock: an item that moves its key's clock, one of 3000.
func BenchmarkClock(b *testing.B) {
	clocks := make([]watermark.Clock, 3000)
	for i := range clocks {
		clocks[i] = watermark.New()
	}
	bounds := watermark.Boundaries{End: 5000, Every: 5000}
	b.ReportAllocs()
	late, time := 0, int64(0)
	for b.Loop() {
		for i := range clocks { // a round is 1 ms later
			c := &clocks[i]
			if c.At(time-4000) >= time {
				late++
			}
			if c.Move(time, 200) {
				c.Next = bounds.After(c.Own)
			}
		}
		time++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(time)/3000, "ns/item")
	require.Zero(b, late)
}
