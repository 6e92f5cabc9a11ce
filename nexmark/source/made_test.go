package source_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/source"
	"tailrace.dev/tailrace/operators"
)

// numbers makes items of five keys; every third comes 20 ms late.
type numbers struct{}

func (numbers) Due(k int64) int64 { return k * 10 }

func (numbers) Make(k int64, v *int64) (time int64) {
	*v = k
	return k*10 - 20*(1-min(k%3, 1))
}

// Whatever its partitions are, a source has each item once and in order, and from whatever position a
// partition is read again, the rest and the watermark are the same.
func TestMade(t *testing.T) {
	byKey := func(v *int64, parts int) int { return int(*v%5) % parts }
	finder := func(p, parts int) source.Finder {
		return func(from, to int64) int64 {
			for ; from < to && byKey(&from, parts) != p; from++ {
			}
			return from
		}
	}
	for _, parts := range []int{1, 2, 3, 7} {
		for name, find := range map[string]func(p, parts int) source.Finder{"turns": nil, "by key": finder} {
			t.Run(fmt.Sprint(name, parts), func(t *testing.T) {
				src := &source.Made[int64]{Items: numbers{}, Count: 100, Parts: parts, Find: find, Delay: 20}
				require.Equal(t, parts, src.Partitions())
				found := map[int64]bool{}
				for i := range parts {
					p, err := src.Open(i)
					require.NoError(t, err)
					var items []int64
					for {
						at := p.Position(nil)
						again, err := src.Open(i)
						require.NoError(t, err)
						require.NoError(t, again.Seek(at))
						require.Equal(t, p.Watermark(), again.Watermark())
						var b, same operators.Batch[int64]
						st, err := p.Read(&b, 3, 0)
						require.NoError(t, err)
						_, err = again.Read(&same, 3, 0)
						require.NoError(t, err)
						require.Equal(t, b.Items, same.Items)
						for j, v := range b.Items {
							require.False(t, found[v])
							found[v] = true
							require.Equal(t, (numbers{}).Make(v, new(int64)), b.Times[j])
							if find != nil {
								require.Equal(t, i, byKey(&v, parts))
							}
						}
						items = append(items, b.Items...)
						if st.State == operators.Ended {
							break
						}
					}
					require.IsIncreasing(t, append([]int64{-1}, items...))
					require.Equal(t, operators.MaxTime, p.Watermark())
					require.NoError(t, p.Close())
				}
				require.Len(t, found, 100)
			})
		}
	}
}

func nothing(int, int) source.Finder { return func(_, to int64) int64 { return to } }

// A partition without items does not hold event time, and does not look for some for ever.
func TestMadeNothing(t *testing.T) {
	src := &source.Made[int64]{Items: numbers{}, Parts: 2, Find: nothing}
	p, err := src.Open(1)
	require.NoError(t, err)
	var b operators.Batch[int64]
	st, err := p.Read(&b, 10, 42)
	require.NoError(t, err)
	require.Equal(t, operators.Status{State: operators.Waiting, Due: 42}, st)
	require.Zero(t, b.Len())
	require.Greater(t, p.Watermark(), int64(600_000))
}

// Paced items come when they are due, whatever their event time is.
func TestMadePaced(t *testing.T) {
	src := &source.Made[int64]{Items: numbers{}, Parts: 1, Paced: true}
	p, err := src.Open(0)
	require.NoError(t, err)
	var b operators.Batch[int64]
	st, err := p.Read(&b, 10, 45)
	require.NoError(t, err)
	require.Equal(t, operators.Status{State: operators.Waiting, Due: 50}, st)
	require.Equal(t, []int64{0, 1, 2, 3, 4}, b.Items)
}

// A paced partition skips the items of others when they are due, and not before: event time is not ahead of the wall clock.
func TestMadePacedNothing(t *testing.T) {
	src := &source.Made[int64]{Items: numbers{}, Parts: 2, Find: nothing, Paced: true}
	p, err := src.Open(1)
	require.NoError(t, err)
	for _, now := range []int64{0, 45, 45, 99, 1000} {
		var b operators.Batch[int64]
		st, err := p.Read(&b, 10, now)
		require.NoError(t, err)
		require.Equal(t, operators.Status{State: operators.Waiting, Due: now/10*10 + 10}, st)
		require.Equal(t, now/10*10, p.Watermark())
	}
}

// A Read passes a bounded number of items of other partitions, however many it finds.
func TestMadeSeldom(t *testing.T) {
	seldom := func(int, int) source.Finder {
		return func(from, to int64) int64 { return min(to, (from+50_000-1)/50_000*50_000) }
	}
	src := &source.Made[int64]{Items: numbers{}, Parts: 2, Find: seldom}
	p, err := src.Open(0)
	require.NoError(t, err)
	var all []int64
	for range 8 {
		var b operators.Batch[int64]
		st, err := p.Read(&b, 10, 42)
		require.NoError(t, err)
		require.Equal(t, operators.Status{State: operators.Waiting, Due: 42}, st)
		all = append(all, b.Items...)
	}
	require.Equal(t, []int64{0, 50_000, 100_000, 150_000, 200_000, 250_000, 300_000, 350_000, 400_000, 450_000, 500_000}, all)
}
