package chooser

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A meter counts what a map of all keys would, while there are no more keys than it remembers.
func TestMeterIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Meter
		var task, key, held, gap Disorder
		newest, before := int64(math.MinInt64), int64(math.MinInt64)
		keys := map[uint64]int64{}
		sent, promised := map[int]int64{}, map[int]int64{}
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			if newest > math.MinInt64 && rapid.Bool().Draw(t, "turn") {
				m.Turn()
				before = newest
			}
			times := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64()), 1, 20).Draw(t, "times")
			from := rapid.IntRange(0, producers+2).Draw(t, "producer")
			promise := rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64(), rapid.Just[int64](math.MaxInt64)).Draw(t, "promise")
			m.From(from, promise)
			if before, ok := promised[from]; from < producers && (!ok || promise > before) {
				if has, ok := sent[from]; ok && promise < math.MaxInt64 {
					held.Add(behind(has, promise))
				}
				promised[from] = promise
			}
			if has, ok := sent[from]; ok {
				sent[from] = max(has, slices.Max(times))
			} else {
				sent[from] = slices.Max(times)
			}
			m.Task(times)
			for j, at := range times {
				task.Add(behind(before, at))
				newest = max(newest, at)
				hash := uint64(rapid.IntRange(0, slots-1).Draw(t, "key"))*oneOf + uint64(j%2) // each second one is not measured
				if !Sampled(hash) {
					continue
				}
				m.Key(hash, at)
				if have, ok := keys[hash]; ok {
					key.Add(behind(have, at))
					if at >= have {
						gap.Add(behind(at, have))
					}
					at = max(at, have)
				}
				keys[hash] = at
			}
		}
		var got Measured
		m.AddTo(&got)
		require.Equal(t, Measured{Task: task, Key: key, Held: held, Gap: gap}, got)
	})
}

// A key gives way to others when none of its items has come for a while, and not before: a key whose items are rare is
// measured, too.
func TestMeterForgets(t *testing.T) {
	var m Meter
	other := uint64(slots * oneOf) // in the same slot
	items := func() uint64 {
		var got Measured
		m.AddTo(&got)
		return got.Key.Items()
	}
	m.Key(0, 10)
	for range 5 {
		for range patience - 1 {
			m.Key(other, 20)
		}
		m.Key(0, 9)
	}
	require.EqualValues(t, 5, items())
	for range patience + 2 {
		m.Key(other, 20)
	}
	require.EqualValues(t, 6, items(), "the other one has its place")
	m.Key(0, 1)
	require.EqualValues(t, 6, items())
}

// What has been measured since an earlier reading has all that was added behind it; keys are those that there are now.
func TestSince(t *testing.T) {
	var m Meter
	var before, now Measured
	m.From(1, 0)
	m.Task([]int64{10, 20, 5})
	m.From(1, 19)
	m.Key(64, 1)
	m.Key(64, 10)
	m.Key(64, 2)
	m.AddTo(&before)
	before.Keys, before.LateByKey, before.LateByStream = 7, 3, 1
	m.Turn()
	m.Task([]int64{19, 30})
	m.Key(64, 9)
	m.From(1, 26)
	m.Key(64, 12)
	m.AddTo(&now)
	now.Keys, now.LateByKey, now.LateByStream = 4, 8, 1
	var task, key, held, gap Disorder
	task.Add(1)
	task.Add(0)
	key.Add(1)
	key.Add(0)
	held.Add(4)
	gap.Add(2)
	require.Equal(t, Measured{Task: task, Key: key, Held: held, Gap: gap, Keys: 4, LateByKey: 5}, now.Since(&before))
}

// Behind a grain that another has set there is no change for 30 s.
func TestSet(t *testing.T) {
	c := New(Limits{Budget: 1 << 20, Bytes: 100}, Choice{})
	next := func(at int64) Choice {
		m := Measured{Keys: 1}
		for i := range int64(4000) {
			m.Task.Add(i)
			m.Key.Add(1)
		}
		got, _ := c.Next(at, []Measured{m})
		return got
	}
	require.True(t, next(1000).PerKey)
	c.Set(2000, Choice{})
	require.False(t, next(2000+silence-1).PerKey)
	require.True(t, next(2000+silence).PerKey)
}
