package route

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
)

// twin is a table as two maps: what is in them wins over the hash.
type twin struct {
	groups int
	keys   map[string]int
	parts  map[[2]int]int // by sub-group
}

func (w *twin) group(key []byte) int {
	if slot, ok := w.keys[string(key)]; ok {
		return slot
	}
	hash := exec.HashKey(key)
	g := exec.GroupOf(hash, w.groups)
	if slot, ok := w.parts[[2]int{g, exec.SubGroupOf(hash, w.groups, Parts)}]; ok {
		return slot
	}
	return g
}

// drawTable draws a table, its twin, and keys that are in it or not.
func drawTable(t *rapid.T) (*Table, *twin, [][]byte) {
	groups, slots := rapid.IntRange(1, 40).Draw(t, "groups"), rapid.IntRange(0, 40).Draw(t, "slots")
	w := &twin{groups, map[string]int{}, map[[2]int]int{}}
	keys := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 9), 1, 60).Draw(t, "keys")
	var places []Place
	for i, slot := range rapid.Permutation(sequence(groups, slots)).Draw(t, "order") {
		key := keys[i%len(keys)]
		hash := exec.HashKey(key)
		of := [2]int{exec.GroupOf(hash, groups), exec.SubGroupOf(hash, groups, Parts)}
		if _, ok := w.parts[of]; ok {
			continue
		}
		inside := false
		for k := range w.keys {
			h := exec.HashKey([]byte(k))
			inside = inside || of == [2]int{exec.GroupOf(h, groups), exec.SubGroupOf(h, groups, Parts)}
		}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
		case 1:
			if !inside {
				w.parts[of] = slot
				p := Part{Group: of[0], Sub: of[1], N: 1}
				for next := [2]int{of[0], of[1] + 1}; next[1] < Parts && rapid.Bool().Draw(t, "longer"); next[1]++ {
					if _, ok := w.parts[next]; ok || slices.ContainsFunc(slices.Collect(maps.Keys(w.keys)), func(k string) bool {
						return Part{Group: next[0], Sub: next[1], N: 1}.Has(exec.HashKey([]byte(k)), []byte(k), groups)
					}) {
						break
					}
					w.parts[next] = slot
					p.N++
				}
				places = append(places, Place{p, slot})
			}
		default:
			if _, ok := w.keys[string(key)]; !ok {
				w.keys[string(key)] = slot
				places = append(places, Place{Single(key), slot})
			}
		}
	}
	table, err := NewTable(rapid.Uint32Range(0, 1<<32-3).Draw(t, "epoch"), groups, slots, places)
	require.NoError(t, err)
	return table, w, keys
}

func sequence(from, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = from + i
	}
	return all
}

// A table routes each key as two maps do, also behind its encoding.
func TestTableIsItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, w, keys := drawTable(t)
		again, err := DecodeTable(table.Append(nil))
		require.NoError(t, err)
		require.Equal(t, table, again)
		for i := range 300 {
			keys = append(keys, fmt.Appendf(nil, "%d", i))
		}
		for _, key := range keys {
			require.Equal(t, w.group(key), table.Group(exec.HashKey(key), key), "key %q", key)
		}
	})
}

// The parts of a group are ranges of hashes, to the last hash; Has and Group agree about them.
func TestPartsAreRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.IntRange(1, MaxGroups-1).Draw(t, "groups")
		p := Part{Group: rapid.IntRange(0, groups-1).Draw(t, "group"), Sub: rapid.IntRange(0, Parts-1).Draw(t, "part")}
		p.N = rapid.IntRange(1, Parts-p.Sub).Draw(t, "of")
		table, err := NewTable(0, groups, 1, []Place{{p, groups}})
		require.NoError(t, err)
		from, to := p.hashes(groups)
		for _, hash := range []uint64{from, to, from + (to-from)/2, rapid.Uint64Range(from, to).Draw(t, "hash")} {
			require.True(t, p.Has(hash, nil, groups))
			require.Equal(t, groups, table.Group(hash, nil))
		}
		for _, hash := range []uint64{from - 1, to + 1} {
			if from <= hash && hash <= to { // every hash is in the part
				continue
			}
			require.False(t, p.Has(hash, nil, groups))
			require.Equal(t, exec.GroupOf(hash, groups), table.Group(hash, nil))
		}
	})
}

// Diff leads from a table to another one, and Next makes it in an epoch or, where a slot is taken from
// one part for another, in two.
func TestDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, _, _ := drawTable(t)
		var places []Place
		for _, p := range a.Places() {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
			case 1:
				places = append(places, Place{p.Part, a.Groups + a.Slots - 1 - (p.Slot - a.Groups)})
			default:
				places = append(places, p)
			}
		}
		b, err := NewTable(a.Epoch, a.Groups, a.Slots, places)
		if err != nil {
			return // a slot is used twice
		}
		require.Empty(t, Diff(b, b))
		var without []int
		var with []Place
		for i, c := range Diff(a, b) {
			if c.From >= a.Groups {
				require.Equal(t, i, len(without), "what is taken back comes first")
				require.Equal(t, c.Home(a.Groups), c.To)
				without = append(without, c.From)
			} else {
				require.Equal(t, c.Home(a.Groups), c.From)
				with = append(with, Place{c.Part, c.To})
			}
		}
		less, err := a.Next(without, nil)
		require.NoError(t, err)
		c, err := less.Next(nil, with)
		require.NoError(t, err)
		require.Equal(t, b.Places(), append([]Place(nil), c.Places()...))
		require.Equal(t, a.Epoch+2, c.Epoch)
	})
}

func TestTableRefused(t *testing.T) {
	key := Single([]byte("a"))
	hash := exec.HashKey([]byte("a"))
	of := Part{Group: exec.GroupOf(hash, 8), Sub: exec.SubGroupOf(hash, 8, Parts), N: 1}
	for want, c := range map[string]struct {
		groups, slots int
		places        []Place
	}{
		"0 hash groups and 1 slots":            {0, 1, nil},
		"8 hash groups and -1 slots":           {8, -1, nil},
		"16384 hash groups and 1 slots":        {MaxGroups, 1, nil},
		"there is no slot 7, they are 8 to 9":  {8, 2, []Place{{key, 7}}},
		"there is no slot 10, they are 8 to 9": {8, 2, []Place{{key, 10}}},
		"and key \"a\" have slot 8":            {8, 2, []Place{{Single([]byte("b")), 8}, {key, 8}}},
		`key "a" is placed twice`:              {8, 2, []Place{{key, 9}, {key, 8}}},
		"is in " + of.String() + ", which is":  {8, 2, []Place{{key, 9}, {of, 8}}},
		"of group 3 from 2 on have keys in":    {8, 2, []Place{{Part{Group: 3, Sub: 1, N: 2}, 8}, {Part{Group: 3, Sub: 2, N: 1}, 9}}},
		"group 8, 1 from 0 on":                 {8, 2, []Place{{Part{Group: 8, N: 1}, 8}}},
		"group 0, 2 from 15 on":                {8, 2, []Place{{Part{Sub: 15, N: 2}, 8}}},
		"group 0, 0 from 3 on":                 {8, 2, []Place{{Part{Sub: 3}, 8}}},
		"group 1, 0 from 0 on":                 {8, 2, []Place{{Part{Single: true, Group: 1}, 8}}},
		`1 from 0 on, key "x" is neither`:      {8, 2, []Place{{Part{Key: "x", N: 1}, 8}}},
	} {
		_, err := NewTable(1, c.groups, c.slots, c.places)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, errTable)
	}
	for _, slots := range []int{0, 1} {
		_, err := NewTable(1, MaxGroups-slots, slots, nil)
		require.NoError(t, err, "as many as there may be")
	}
	table, err := NewTable(1, 8, 2, []Place{{key, 8}})
	require.NoError(t, err)
	_, err = table.Next([]int{9}, nil)
	require.ErrorContains(t, err, "slot 9 has nothing to take back")
	_, err = table.Next([]int{8, 8}, nil)
	require.ErrorContains(t, err, "slot 8 has nothing to take back")
	_, err = table.Next([]int{8}, []Place{{Single([]byte("b")), 8}})
	require.ErrorContains(t, err, "slot 8 is taken back and used")
	table.Epoch = ^uint32(0)
	_, err = table.Next(nil, nil)
	require.ErrorContains(t, err, "no epoch behind")
}

// The bytes of a table are those of the drawing at Append.
func TestTableBytes(t *testing.T) {
	table, err := NewTable(3, 200, 4, []Place{{Part{Group: 20, Sub: 5, N: 2}, 203}, {Single([]byte("ab")), 200}, {Single(nil), 201}})
	require.NoError(t, err)
	want := []byte{3, 200, 1, 4, 3, 0, 19, 'a', 'b', 1, 17, 3, 2, 0xc5, 2}
	require.Equal(t, want, table.Append(nil))
	part, ok := table.At(203)
	require.True(t, ok)
	require.Equal(t, "2/16 of group 20 from 5 on", part.String())
	_, ok = table.At(202)
	require.False(t, ok)
	for i := range want {
		_, err := DecodeTable(want[:i])
		require.ErrorContains(t, err, "are no table")
	}
	for _, b := range [][]byte{append(bytes.Clone(want), 0), {0x83, 0, 1, 0, 0}, {3, 8, 2, 2, 1, 18, 'a', 0, 18, 'b'}, binary.AppendUvarint(nil, 1<<32)} {
		_, err := DecodeTable(b)
		require.ErrorContains(t, err, "are no table")
	}
}

func FuzzDecodeTable(f *testing.F) {
	f.Add([]byte{3, 200, 1, 4, 3, 0, 19, 'a', 'b', 1, 17, 3, 2, 0xc5, 2})
	f.Add([]byte{0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := DecodeTable(b)
		if err != nil {
			return
		}
		require.Equal(t, b, table.Append(nil), "a table has one encoding")
	})
}

// A lookup allocates nothing.
func TestLookupAllocates(t *testing.T) {
	table, keys := benchmarked(32)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		for _, k := range keys[:100] {
			table.Group(exec.HashKey(k), k)
		}
	}))
}

// benchmarked returns a table with n places, half of them keys, and 4096 keys, the placed ones first.
func benchmarked(n int) (*Table, [][]byte) {
	var keys [][]byte
	for i := range 4096 {
		keys = append(keys, binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	var places []Place
	for i := range n {
		p := Part{Group: (i*331 + 7) % 1024, Sub: i % Parts, N: 1}
		if i%2 == 0 {
			p = Single(keys[i/2])
		}
		places = append(places, Place{p, 1024 + i})
	}
	table, err := NewTable(1, 1024, 32, places)
	if err != nil {
		panic(err)
	}
	return table, keys
}

func BenchmarkTableGroup(b *testing.B) {
	for _, n := range []int{0, 1, 32} {
		table, keys := benchmarked(n)
		hashes := make([]uint64, len(keys))
		for i, k := range keys {
			hashes[i] = exec.HashKey(k)
		}
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(keys), func(i, k int) {
			keys[i], keys[k], hashes[i], hashes[k] = keys[k], keys[i], hashes[k], hashes[i]
		})
		sum := 0
		b.Run(fmt.Sprintf("places=%d", n), func(b *testing.B) {
			for i := range b.N {
				sum += table.Group(hashes[i&4095], keys[i&4095])
			}
		})
		b.Run(fmt.Sprintf("places=%d/hash", n), func(b *testing.B) { // what there is without a table
			for i := range b.N {
				sum += exec.GroupOf(hashes[i&4095], 1024)
			}
		})
		require.Positive(b, sum)
	}
}
