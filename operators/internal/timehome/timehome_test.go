package timehome_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/timehome"
	"tailrace.dev/tailrace/operators/optest"
)

// A Home of entries by time is a map of them: across drops of key groups, deletions by time, and sweeps. A key may have entries of
// several groups.
func TestHomeIsAMap(t *testing.T) {
	const groups = 3
	rapid.Check(t, func(t *rapid.T) {
		below := optest.NewHome(7)
		type at struct {
			key   string
			group int
		}
		h, is := timehome.New(below, groups), map[at]string{}
		require.Equal(t, 7, h.Limit())
		floor := int64(-5) // entries are above it
		row := func(label string) (key []byte, group int) {
			k := rapid.IntRange(0, 5).Draw(t, label)
			return fmt.Append(timehome.Key(nil, rapid.Int64Range(floor+1, floor+6).Draw(t, "time")), k), rapid.IntRange(0, groups-1).Draw(t, "group")
		}
		sorted := func() []at {
			return slices.SortedFunc(maps.Keys(is), func(a, b at) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.group, b.group)) })
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "do") {
			default:
				key, g := row("key")
				value := fmt.Append(nil, i)
				h.Put(g, key, value)
				is[at{string(key), g}] = string(value)
			case 0, 1:
				key, g := row("key")
				h.Delete(g, key)
				delete(is, at{string(key), g})
			case 2:
				g := rapid.IntRange(0, groups-1).Draw(t, "group")
				h.Drop(g)
				for k := range is {
					if k.group == g {
						delete(is, k)
					}
				}
			case 3:
				from := rapid.Int64Range(floor, floor+6).Draw(t, "from")
				to := rapid.Int64Range(from, floor+7).Draw(t, "to")
				h.DeleteTimes(from, to)
				for k := range is {
					if at := timehome.Time([]byte(k.key)); from < at && at <= to {
						delete(is, k)
					}
				}
			case 4: // the first key fires, and later deletions of its entries are one range
				if keys := sorted(); len(keys) > 0 {
					first := []byte(keys[0].key)
					swept := bytes.Clone(first[8:])
					if rapid.Bool().Draw(t, "behind it") {
						swept[len(swept)-1]++
					}
					h.Sweep(first[:8], swept)
					for _, k := range keys {
						if k.key == keys[0].key {
							h.Delete(k.group, first)
							delete(is, k)
						}
					}
					h.Flush()
					h.Sweep(nil, nil)
				}
			}
			if rapid.Bool().Draw(t, "commit") {
				h.Clean()
			} else {
				h.Flush()
			}
			key, g := row("read")
			value, ok := h.Get(g, key, []byte("behind "))
			want, has := is[at{string(key), g}]
			require.Equal(t, has, ok)
			require.Equal(t, "behind "+want, string(value))
			// The lower bound may be behind a key.
			from, to := fmt.Append(timehome.Key(nil, floor+2), rapid.SampledFrom([]string{"", "1", "1\x00"}).Draw(t, "from")), timehome.Key(nil, floor+5)
			var all, some, wantAll, wantSome []string
			h.All(from, to, func(g int, key, value []byte) bool {
				all = append(all, fmt.Sprint(string(key), g, string(value)))
				return true
			})
			h.Range(1, nil, nil, func(key, value []byte) bool {
				some = append(some, string(key)+string(value))
				return len(some) < 2
			})
			for _, k := range sorted() {
				if k.key >= string(from) && k.key < string(to) {
					wantAll = append(wantAll, fmt.Sprint(k.key, k.group, is[k]))
				}
				if k.group == 1 && len(wantSome) < 2 {
					wantSome = append(wantSome, k.key+is[k])
				}
			}
			require.Equal(t, wantAll, all)
			require.Equal(t, wantSome, some)
		}
		h.Clean() // there may have been drops since a pass began
		h.Clean()
		require.Len(t, is, entries(below), "nothing is left of the groups that were dropped")
	})
}

// entries counts what a Home has in group 0.
func entries(h exec.Home) (n int) {
	h.Range(0, nil, nil, func([]byte, []byte) bool {
		n++
		return true
	})
	return n
}

// Groups come and go and the task has nothing of its own when their times are over: what they have left is
// deleted at commits, a bounded part at each, and no entry that another group has.
func TestLeftoversAreDeleted(t *testing.T) {
	for name, size := range map[string]int{"small": 1, "large": 4 << 10} {
		t.Run(name, func(t *testing.T) {
			below := &counted{Home: optest.NewHome(7)}
			h := timehome.New(below, 3)
			value := make([]byte, size)
			key := func(time, n int) []byte { return fmt.Append(timehome.Key(nil, int64(time)), n) }
			const stays, come = 100, 2000
			for n := range stays {
				h.Put(2, key(20*n, -1), value)
			}
			for cycle := range 40 {
				at := 50 * cycle // in front of a pass, and behind it
				if cycle%4 > 1 {
					at = -at
				}
				for n := range come {
					h.Put(cycle%2, key(at, n+come*(cycle%2)), value)
				}
				h.Clean()
				h.Drop(cycle % 2)
				below.read = 0
				h.Clean()
				require.LessOrEqual(t, below.read, 5*come, "at one commit")
			}
			require.Less(t, entries(below), 20*come)
			for range 400 {
				h.Clean()
			}
			require.Equal(t, stays, entries(below))
			below.read = 0
			h.Clean()
			require.Zero(t, below.read, "nothing was dropped since")
			n := 0
			h.All(nil, nil, func(int, []byte, []byte) bool {
				n++
				return true
			})
			require.Equal(t, stays, n)
		})
	}
}

// counted counts the entries that ranges read.
type counted struct {
	exec.Home
	read int
}

func (c *counted) Range(group int, from, to []byte, f func(key, value []byte) bool) {
	c.Home.Range(group, from, to, func(key, value []byte) bool {
		c.read++
		return f(key, value)
	})
}

// Keys are in the order of their times, also before 1970.
func TestKeyAndTime(t *testing.T) {
	var before []byte
	for _, at := range []int64{-1 << 63, -1000, -1, 0, 1, 1000, 1<<63 - 1} {
		key := timehome.Key([]byte{}, at)
		require.Equal(t, at, timehome.Time(append(key, 9)))
		require.Negative(t, bytes.Compare(before, key))
		before = key
	}
}

// An entry that a key group brings below what was swept stays when others there are deleted, before and after it.
func TestPutBelowTheSweep(t *testing.T) {
	at := func(ms int64) []byte { return append(timehome.Key(nil, ms), 'k') }
	for _, late := range []bool{false, true} {
		below := optest.NewHome(7)
		h := timehome.New(below, 2)
		h.Put(0, at(5), []byte("fired"))
		h.Put(0, at(8), []byte("fired"))
		h.Sweep(timehome.Key(nil, 10), nil)
		h.Delete(0, at(5))
		if !late {
			h.Delete(0, at(8))
		}
		h.Put(1, at(7), []byte("comes"))
		if late {
			h.Delete(0, at(8))
		}
		h.Flush()
		got := map[int64]string{}
		h.All(nil, nil, func(_ int, key, value []byte) bool {
			got[timehome.Time(key)] = string(value)
			return true
		})
		require.Equal(t, map[int64]string{7: "comes"}, got, "late: %t", late)
	}
}
