package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// shelf is a Home made of a map. Nothing of what waits for a Flush is seen.
type shelf struct {
	limit   int
	rows    map[string]string
	waiting []func()
}

func newShelf(limit int) *shelf { return &shelf{limit: limit, rows: map[string]string{}} }

func (h *shelf) at(group int, key []byte) string {
	return string(append(binary.BigEndian.AppendUint16(nil, uint16(group)), key...))
}

func (h *shelf) Get(group int, key, dst []byte) ([]byte, bool) {
	v, ok := h.rows[h.at(group, key)]
	return append(dst, v...), ok
}

func (h *shelf) Put(group int, key, value []byte) {
	k, v := h.at(group, key), string(value)
	h.waiting = append(h.waiting, func() { h.rows[k] = v })
}

func (h *shelf) Delete(group int, key []byte) {
	k := h.at(group, key)
	h.waiting = append(h.waiting, func() { delete(h.rows, k) })
}

func (h *shelf) to(group int, to []byte) string {
	if to == nil {
		return h.at(group+1, nil)
	}
	return h.at(group, to)
}

func (h *shelf) DeleteRange(group int, from, to []byte) {
	lower, upper := h.at(group, from), h.to(group, to)
	h.waiting = append(h.waiting, func() {
		maps.DeleteFunc(h.rows, func(k, _ string) bool { return lower <= k && k < upper })
	})
}

func (h *shelf) Flush() {
	for _, f := range h.waiting {
		f()
	}
	h.waiting = nil
}

func (h *shelf) Range(group int, from, to []byte, f func(key, value []byte) bool) {
	for _, k := range slices.Sorted(maps.Keys(h.rows)) {
		if h.at(group, from) <= k && k < h.to(group, to) && !f([]byte(k[2:]), []byte(h.rows[k])) {
			return
		}
	}
}

func (h *shelf) Drop(group int) {
	h.DeleteRange(group, nil, nil)
	h.Flush()
}

func (h *shelf) Limit() int { return h.limit }

// placed is an instance of some tables, in memory or on disk, by what all kinds have in common.
type placed struct {
	tables []exec.StateTable
	// change changes what a key has, get says it; due removes what is due by now, and says what that was, in its order.
	change func(group int, key, n int64)
	get    func(group int, key int64) string
	due    func(now int64) []string
}

// place makes tables of a kind. now is the event time; disk says that they use Homes.
func place(kind string, groups int, now *int64, disk bool, limit int) *placed {
	p := &placed{due: func(int64) []string { return nil }}
	switch kind {
	case "map", "list":
		o := owners(kind, groups)[0]
		p.tables = []exec.StateTable{o.StateTable}
		p.get = func(g int, k int64) string { return fmt.Sprint(o.get(g, k)) }
		p.change = func(g int, k, n int64) {
			if n%3 == 0 {
				o.remove(g, k)
				return
			}
			o.put(g, k)
		}
	case "panes":
		m := NewPaneTable[int64, int64]("m", groups, serde.Int64, serde.Int64, open{}, "")
		p.tables = []exec.StateTable{m}
		p.get = func(g int, k int64) (text string) {
			if m.disk != nil {
				m.disk.fresh = false // this is not a key that Collect has returned
			}
			for end := *now + 1; end <= *now+4; end++ {
				if e := m.Find(g, &k, end-1, end); e != nil {
					if x := e.V.At(end); x != nil && !x.Dead {
						text += fmt.Sprint(end, x.Acc, " ")
					}
				}
			}
			return text
		}
		p.change = func(g int, k, n int64) {
			_, x, _ := m.Upsert(g, &k, *now+1+n%4)
			x.Acc += n
		}
		p.due = func(to int64) (all []string) { // as package closing does
			var found []*PaneEntry[int64, int64]
			if m.disk == nil {
				for g := range groups {
					found = append(found, sortedEntries(&m.index, g, serde.Int64, func(*Panes[int64]) bool { return true })...)
				}
				slices.SortStableFunc(found, func(a, b *PaneEntry[int64, int64]) int {
					return bytes.Compare(serde.Int64.Append(nil, &a.Key), serde.Int64.Append(nil, &b.Key))
				})
			} else {
				m.WriteBack(*now, to)
				var after []byte
				for more := true; more; {
					var keys []DueKey[int64]
					keys, after, more = m.Collect(*now, to, after)
					for _, k := range keys {
						found = append(found, m.Find(k.Group, &k.Key, *now, to))
					}
				}
			}
			for _, e := range found {
				for end := *now + 1; end <= to; end++ {
					if x := e.V.At(end); x != nil && !x.Dead {
						all = append(all, fmt.Sprint(e.Group, e.Key, end, x.Acc))
					}
				}
				m.DropPanes(e, *now, to)
			}
			if m.disk != nil {
				m.Expire(*now, to)
			}
			return all
		}
	case "timers":
		ts := NewTimers("t", groups, serde.Int64)
		p.tables = []exec.StateTable{ts.Table()}
		p.get = func(g int, k int64) (text string) {
			for t := range int64(60) {
				if ts.Has(g, &k, t) {
					text += fmt.Sprint(t, " ")
				}
			}
			return text
		}
		p.change = func(g int, k, n int64) {
			if n%4 == 0 {
				ts.Delete(g, &k, *now+n/4%20)
				return
			}
			for i := range n % 5 {
				ts.Set(g, &k, *now+(n+7*i)%20) // some are due already
			}
		}
		p.due = func(to int64) (all []string) {
			for {
				if _, ok := ts.Next(to); !ok {
					return all
				}
				if t, g, k, ok := ts.Pop(to); ok {
					all = append(all, fmt.Sprint(t, g, k))
				}
			}
		}
	case "maps", "maps that end":
		span := int64(0)
		if kind == "maps that end" {
			span = 7
		}
		x := NewExpiring("x", groups, MapKeys(serde.Int64, serde.Int64), serde.Int64, span, func() int64 { return *now })
		h := NewMaps(serde.Int64, x)
		p.tables = x.Tables()
		p.get = func(g int, k int64) string {
			text := fmt.Sprint(h.Keys(g, &k))
			for _, sub := range slices.Clone(h.Keys(g, &k)) {
				text += fmt.Sprint(" ", *h.Get(g, &k, sub))
			}
			return text
		}
		p.change = func(g int, k, n int64) {
			switch n % 7 {
			case 0:
				h.Delete(g, &k, n/7%5)
			case 1:
				h.Clear(g, &k)
			default:
				*h.Upsert(g, &k, n/7%5) += n
			}
		}
		if span > 0 {
			p.due = func(to int64) []string {
				*now = to
				done, err := x.Advance(to, &exec.Meter{})
				return []string{fmt.Sprint(done, err)}
			}
		}
	}
	if disk {
		for _, table := range p.tables {
			table.(interface{ Spill(h exec.Home) }).Spill(newShelf(limit))
		}
	}
	return p
}

// logged is an item of a change log.
type loggedItem struct {
	table, group int
	op           byte
	key, value   []byte
}

func itemsOf(t *rapid.T, group int, s *exec.Section) (all []loggedItem) {
	r := serde.NewReader(s.Data)
	for range s.Items {
		x := loggedItem{table: int(r.Uint64()), group: group, op: byte(r.Uint64()), key: bytes.Clone(r.Bytes())}
		if x.op != exec.OpDelete {
			x.value = bytes.Clone(r.Bytes())
		}
		require.NoError(t, r.Err())
		all = append(all, x)
	}
	return all
}

// Tables of which next to nothing stays in memory are re-homed, parts there and back, amid changes, evictions, timers that fire,
// key groups that leave and come back, and instances that begin with an empty Home: they have what tables in memory have,
// and write the same changes, byte for byte.
func TestRehomedOnDiskAsInMemory(t *testing.T) {
	for _, kind := range []string{"map", "list", "panes", "timers", "maps", "maps that end"} {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				const groups = partsOfKeys + 1
				var now, nowOnDisk int64
				limit := rapid.SampledFrom([]int{0, 300, 2000}).Draw(t, "limit")
				memory, disk := place(kind, groups, &now, false, 0), place(kind, groups, &nowOnDisk, true, limit)
				var at [partsOfKeys]int
				var log []loggedItem
				commit := func() {
					outs := [2]*exec.Output{exec.NewOutput(groups), exec.NewOutput(groups)}
					for i := range memory.tables {
						require.Equal(t, memory.tables[i].Pending() > 0, disk.tables[i].Pending() > 0)
						memory.tables[i].Changes(i, outs[0])
						disk.tables[i].Changes(i, outs[1])
						require.Equal(t, memory.tables[i].Len(), disk.tables[i].Len())
						for g := range groups {
							require.Equal(t, memory.tables[i].Keys(g), disk.tables[i].Keys(g))
						}
					}
					for g := range groups {
						require.Equal(t, itemsOf(t, g, outs[0].Section(g)), itemsOf(t, g, outs[1].Section(g)), "key group %d", g)
						log = append(log, itemsOf(t, g, outs[0].Section(g))...)
					}
				}
				rehome := func(p *placed, part, to int) {
					require.NoError(t, exec.Rehome(p.tables, at[part], to, func(hash uint64, key []byte) bool {
						require.Equal(t, exec.HashKey(key), hash)
						return int(int64Of(key)%partsOfKeys) == part
					}))
				}
				check := func(k int64) {
					for g := range groups {
						require.Equal(t, memory.get(g, k), disk.get(g, k), "key %d, key group %d of %v", k, g, at)
					}
				}
				// restore applies the change logs of some groups, one after the other or as they are, or a snapshot and what was logged since a time
				// before it.
				restore := func(some []int) {
					var all []loggedItem
					switch rapid.IntRange(0, 2).Draw(t, "logs") {
					case 0:
						all = slices.Clone(log)
					case 1:
						for _, g := range rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "order") {
							for _, x := range log {
								if x.group == g {
									all = append(all, x)
								}
							}
						}
					case 2:
						newest := map[string]int{}
						for i, x := range log {
							newest[fmt.Sprint(x.table, x.group, x.key)] = i
						}
						for i, x := range log {
							if x.op = exec.OpPut; newest[fmt.Sprint(x.table, x.group, x.key)] == i && log[i].op != exec.OpDelete {
								all = append(all, x)
							}
						}
						slices.Reverse(all)
						all = append(all, log[rapid.IntRange(0, len(log)).Draw(t, "since"):]...)
					}
					for _, x := range all {
						if slices.Contains(some, x.group) {
							require.NoError(t, disk.tables[x.table].Apply(x.group, x.op, x.key, x.value))
						}
					}
					for _, table := range disk.tables {
						require.NoError(t, table.Restored(some))
					}
				}
				for range rapid.IntRange(1, 80).Draw(t, "steps") {
					k := rapid.Int64Range(0, keysOfParts-1).Draw(t, "key")
					part := int(k % partsOfKeys)
					switch rapid.IntRange(0, 13).Draw(t, "do") {
					case 0, 1:
						to := part + 1 - at[part] // there or back
						rehome(memory, part, to)
						rehome(disk, part, to)
						at[part] = to
						if rapid.Bool().Draw(t, "look") {
							check(k)
						}
						commit()
					case 2:
						commit()
					case 3:
						check(k)
					case 4:
						to := now + rapid.Int64Range(1, 4).Draw(t, "advance")
						require.Equal(t, memory.due(to), disk.due(to))
						now, nowOnDisk = to, to
						commit()
					case 5:
						commit()
						if rapid.Bool().Draw(t, "re-homed before") { // which is lost
							rehome(disk, part, part+1-at[part])
						}
						disk = place(kind, groups, &nowOnDisk, true, limit)
						restore([]int{0, 1, 2, 3})
						check(k)
					case 6:
						commit()
						some := []int{rapid.IntRange(0, groups-1).Draw(t, "group")}
						for _, table := range disk.tables {
							require.Nil(t, table.Detach(some[0]))
						}
						if rapid.Bool().Draw(t, "away at a commit") {
							for i, table := range disk.tables {
								table.Changes(i, exec.NewOutput(groups))
							}
						}
						restore(some)
						check(k)
					default:
						for range rapid.IntRange(1, 4).Draw(t, "changes") {
							n := rapid.Int64Range(1, 1000).Draw(t, "n")
							memory.change(at[part], k, n)
							disk.change(at[part], k, n)
						}
					}
				}
				commit()
				for k := range int64(keysOfParts) {
					check(k)
				}
				require.Equal(t, memory.due(now+100), disk.due(now+100))
				now, nowOnDisk = now+100, now+100
				commit()
				for i := range memory.tables {
					require.Equal(t, memory.tables[i].Len(), disk.tables[i].Len())
				}
			})
		})
	}
}

// Of a key group that is larger than memory, only the part that is re-homed comes into memory, and leaves it with the commit.
func TestRehomeBringsThePartOnly(t *testing.T) {
	for _, kind := range []string{"map", "list", "panes", "timers", "maps", "maps that end"} {
		var now int64
		const keys, part = 1000, 7
		p := place(kind, 2, &now, true, 0)
		inMemory := func() (n int) {
			for _, table := range p.tables {
				switch m := table.(type) {
				case *Map[int64, int64]:
					n += m.index.Size()
				case *List[int64, int64]:
					n += m.index.Size()
				case *PaneTable[int64, int64]:
					n += m.index.Size()
				case *Map[PaneKey[int64], struct{}]:
					n += m.index.Size()
				case *Map[mapKey[int64, int64], int64]:
					n += m.index.Size()
				case *Map[PaneKey[mapKey[int64, int64]], struct{}]:
					n += m.index.Size()
				default:
					require.Fail(t, kind)
				}
			}
			return n
		}
		commit := func() {
			for i, table := range p.tables {
				table.Changes(i, exec.NewOutput(2))
			}
		}
		for k := range int64(keys) {
			p.change(0, k, 2)
			commit()
		}
		before := inMemory()
		require.Less(t, before, 50, kind)
		require.NoError(t, exec.Rehome(p.tables, 0, 1, func(_ uint64, key []byte) bool { return int64Of(key)%(keys/part) == 0 }))
		require.LessOrEqual(t, inMemory(), before+4*len(p.tables)*(part+1), kind)
		commit()
		require.Less(t, inMemory(), 50, kind)
		require.NotEmpty(t, p.get(1, 0), kind)
	}
}
