package timehome_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/timehome"
	"tailrace.dev/tailrace/operators/optest"
)

// A Home of entries by time is a map of them: across drops of key groups, deletions by time, and sweeps.
func TestHomeIsAMap(t *testing.T) {
	const groups = 3
	rapid.Check(t, func(t *rapid.T) {
		below := optest.NewHome(7)
		h, is := timehome.New(below, groups), map[string]string{}
		require.Equal(t, 7, h.Limit())
		floor := int64(-5) // entries are above it
		row := func(label string) (key []byte, group int) {
			k := rapid.IntRange(0, 5).Draw(t, label)
			return fmt.Append(timehome.Key(nil, rapid.Int64Range(floor+1, floor+6).Draw(t, "time")), k), k % groups
		}
		sorted := func() (keys []string) {
			for k := range is {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			return keys
		}
		groupOf := func(key string) int { return int(key[len(key)-1]-'0') % groups }
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "do") {
			default:
				key, g := row("key")
				value := fmt.Append(nil, i)
				h.Put(g, key, value)
				is[string(key)] = string(value)
			case 0, 1:
				key, g := row("key")
				h.Delete(g, key)
				delete(is, string(key))
			case 2:
				g := rapid.IntRange(0, groups-1).Draw(t, "group")
				h.Drop(g)
				for k := range is {
					if groupOf(k) == g {
						delete(is, k)
					}
				}
			case 3:
				from := rapid.Int64Range(floor, floor+6).Draw(t, "from")
				to := rapid.Int64Range(from, floor+7).Draw(t, "to")
				h.DeleteTimes(from, to)
				for k := range is {
					if at := timehome.Time([]byte(k)); from < at && at <= to {
						delete(is, k)
					}
				}
			case 4: // the first entry fires, and later deletions of it are one range
				if keys := sorted(); len(keys) > 0 {
					first := []byte(keys[0])
					at := rapid.SampledFrom([]string{"", "\x00"}).Draw(t, "swept")
					h.Sweep(first[:8], append(bytes.Clone(first[8:]), at...))
					h.Delete(groupOf(keys[0]), first)
					delete(is, keys[0])
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
			want, has := is[string(key)]
			require.Equal(t, has, ok)
			require.Equal(t, "behind "+want, string(value))
			_, ok = h.Get((g+1)%groups, key, nil)
			require.False(t, ok, "it is of another key group")
			from, to := timehome.Key(nil, floor+2), timehome.Key(nil, floor+5)
			var all, some, wantAll, wantSome []string
			h.All(from, to, func(g int, key, value []byte) bool {
				require.Equal(t, groupOf(string(key)), g)
				all = append(all, string(key)+string(value))
				return true
			})
			h.Range(1, nil, nil, func(key, value []byte) bool {
				some = append(some, string(key)+string(value))
				return len(some) < 2
			})
			for _, k := range sorted() {
				if k >= string(from) && k < string(to) {
					wantAll = append(wantAll, k+is[k])
				}
				if groupOf(k) == 1 && len(wantSome) < 2 {
					wantSome = append(wantSome, k+is[k])
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
