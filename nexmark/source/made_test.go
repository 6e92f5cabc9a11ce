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
	for _, parts := range []int{1, 2, 3, 7} {
		for name, partition := range map[string]func(*int64, int) int{"turns": nil, "by key": byKey} {
			t.Run(fmt.Sprint(name, parts), func(t *testing.T) {
				src := &source.Made[int64]{Items: numbers{}, Count: 100, Parts: parts, Partition: partition, Delay: 20}
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
							if partition != nil {
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

// A partition without items does not hold event time, and does not look for some for ever.
func TestMadeNothing(t *testing.T) {
	src := &source.Made[int64]{Items: numbers{}, Parts: 2, Partition: func(*int64, int) int { return 0 }}
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
