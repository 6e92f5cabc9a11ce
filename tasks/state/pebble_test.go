package state_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks/state"
)

func openPebble(t testing.TB) *state.Pebble {
	p, err := state.OpenPebble(filepath.Join(t.TempDir(), "state"), 16<<20)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// The store behaves like maps, whatever the other tables and tasks of the database hold.
func TestHomeIsMaps(t *testing.T) {
	p := openPebble(t)
	rapid.Check(t, func(t *rapid.T) {
		task, neighbour := p.Task(), p.Task()
		defer func() { require.NoError(t, task.Close()) }()
		h, twin := task.Table(3), optest.NewHome(0)
		key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xff}), 0, 3)
		group := rapid.IntRange(0, 2)
		bound := func(t *rapid.T) []byte {
			if rapid.Bool().Draw(t, "bounded") {
				return key.Draw(t, "bound")
			}
			return nil
		}
		bounds := func(t *rapid.T) (from, to []byte) {
			if from, to = bound(t), bound(t); to != nil && bytes.Compare(from, to) > 0 {
				from, to = to, from
			}
			return from, to
		}
		read := func(h exec.Home, g int, from, to []byte) (all []string) {
			h.Range(g, from, to, func(k, v []byte) bool {
				all = append(all, fmt.Sprintf("%x=%x", k, v))
				return true
			})
			return all
		}
		both := func(f func(h exec.Home)) {
			f(h)
			f(twin)
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				g, k, v := group.Draw(t, "group"), key.Draw(t, "key"), key.Draw(t, "value")
				both(func(h exec.Home) { h.Put(g, k, v) })
			},
			"delete": func(t *rapid.T) {
				g, k := group.Draw(t, "group"), key.Draw(t, "key")
				both(func(h exec.Home) { h.Delete(g, k) })
			},
			"delete a range": func(t *rapid.T) {
				g := group.Draw(t, "group")
				from, to := bounds(t)
				both(func(h exec.Home) { h.DeleteRange(g, from, to) })
			},
			"drop": func(t *rapid.T) {
				g := group.Draw(t, "group")
				both(func(h exec.Home) { h.Flush(); h.Drop(g) })
			},
			"others": func(t *rapid.T) {
				g, k := group.Draw(t, "group"), key.Draw(t, "key")
				task.Table(2).Put(g, k, k)
				task.Table(4).DeleteRange(g, nil, nil)
				neighbour.Table(3).Put(g, k, k)
			},
			"read": func(t *rapid.T) {
				both(func(h exec.Home) { h.Flush() })
				g, k := group.Draw(t, "group"), key.Draw(t, "key")
				from, to := bounds(t)
				require.Equal(t, read(twin, g, from, to), read(h, g, from, to))
				want, there := twin.Get(g, k, []byte("x"))
				got, ok := h.Get(g, k, []byte("x"))
				require.Equal(t, there, ok)
				require.Equal(t, want, got)
			},
		})
		require.NoError(t, neighbour.Close())
		both(func(h exec.Home) { h.Flush() })
		for g := range 3 {
			require.Equal(t, read(twin, g, nil, nil), read(h, g, nil, nil))
		}
		require.NoError(t, task.Err())
	})
}

// Files are damaged while the store is in use: what is read there is an error of the task, which names the place, and the
// process does not end.
func TestDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	p, err := state.OpenPebble(dir, 1<<20)
	require.NoError(t, err)
	task := p.Task()
	h := task.Table(0)
	value := make([]byte, 1000)
	for i := range 8000 {
		h.Put(0, binary.BigEndian.AppendUint32(nil, uint32(i)), value)
	}
	h.Flush()
	require.NoError(t, task.Err())
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	for _, name := range tables {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // compacted
		}
		require.NoError(t, err)
		st, err := f.Stat()
		require.NoError(t, err)
		_, err = f.WriteAt(bytes.Repeat([]byte{7}, int(st.Size()/2)), 0)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	h.Range(0, nil, nil, func(_, _ []byte) bool { return true })
	require.ErrorContains(t, task.Err(), "state in "+dir+": ")
	require.ErrorContains(t, task.Err(), " is damaged: check the disk, and start again")
	_ = task.Close()
	_ = p.Close()
	require.NoDirExists(t, dir)
}

type note struct {
	Key string
	N   int64
}

var noteSerde = serde.New("note",
	func(dst []byte, h *note) []byte { return serde.AppendInt64(serde.AppendString(dst, h.Key), h.N) },
	func(r *serde.Reader, h *note) { h.Key, h.N = r.String(), r.Int64() })

var sum = operators.Aggregator[note, int64]{
	Add:   func(acc *int64, v *note, _ int64) { *acc += v.N },
	Merge: func(acc, other *int64) { *acc += *other },
	Acc:   serde.Int64,
}

type keyed = operators.KeyedStream[string, note]

// stages are the stages whose state is more than one value per key.
var stages = map[string]func(job *operators.Job, left, right keyed){
	"windows": func(_ *operators.Job, left, _ keyed) {
		operators.ToSink(operators.AggregateWindows(left, operators.Sliding(20*time.Millisecond, 10*time.Millisecond), sum).With(operators.WindowedSerde(serde.Int64)), "out", nowhere[operators.KV[string, operators.Windowed[int64]]]{})
	},
	"late": func(_ *operators.Job, left, _ keyed) {
		operators.ToSink(operators.AggregateWindows(left, operators.Tumbling(10*time.Millisecond), sum, operators.Lateness(25*time.Millisecond)), "out", nowhere[operators.KV[string, operators.Windowed[int64]]]{})
	},
	"items": func(_ *operators.Job, left, _ keyed) {
		sums := operators.ApplyWindows(left, operators.Sliding(20*time.Millisecond, 10*time.Millisecond), func(_ *string, items []operators.Elem[note]) (sum int64) {
			for i := range items {
				sum += items[i].Value.N
			}
			return sum
		}, operators.Lateness(15*time.Millisecond))
		operators.ToSink(sums, "out", nowhere[operators.KV[string, operators.Windowed[int64]]]{})
	},
	"sessions": func(_ *operators.Job, left, _ keyed) {
		operators.ToSink(operators.AggregateSessions(left, "sessions", 8*time.Millisecond, sum), "out", nowhere[operators.KV[string, operators.Windowed[int64]]]{})
	},
	"join": func(_ *operators.Job, left, right keyed) {
		joined := operators.JoinStreams(left, right, "join", 15*time.Millisecond, func(k *string, l, r *note) string { return fmt.Sprint(*k, l.N, r.N) })
		operators.ToSink(operators.Map(joined, func(kv *operators.KV[string, string]) string { return kv.Value }), "out", nowhere[string]{})
	},
}

type nowhere[T any] struct{}

func (nowhere[T]) Open(int, int) (operators.SinkWriter[T], error) { return nil, nil }

// runtime is what a chain needs from a task; homes is nil in memory.
type runtime struct {
	outs  []*exec.Output
	homes func(table int) exec.Home
	roomy bool // else homes have room for a few entries
	late  int
}

func (r *runtime) Task() (int, int)          { return 0, 1 }
func (r *runtime) Groups() int               { return groups }
func (r *runtime) OutputGroups(int) int      { return groups }
func (r *runtime) Promises(int) []int64      { return nil }
func (r *runtime) Output(i int) *exec.Output { return r.outs[i] }
func (r *runtime) Now() int64                { return 0 }
func (r *runtime) Random() uint64            { return 0 }
func (r *runtime) Fence() operators.Fence    { return operators.Fence{} }
func (r *runtime) Arrived(int64)             {}
func (r *runtime) Late(n int)                { r.late += n }
func (r *runtime) Count(string, int64)       {}
func (r *runtime) Home(table int) exec.Home {
	if r.homes == nil {
		return nil
	}
	if r.roomy {
		return r.homes(table)
	}
	return tight{r.homes(table)}
}

// tight has room for a few entries.
type tight struct{ exec.Home }

func (tight) Limit() int { return 300 }

const groups = 4

// half is one of two equal chains: one on disk, one in memory.
type half struct {
	exec.Chain
	rt *runtime
}

func newHalf(t require.TestingT, spec *exec.StageSpec, task *state.Task) half {
	rt := &runtime{}
	for range spec.Outputs {
		rt.outs = append(rt.outs, exec.NewOutput(groups))
	}
	if task != nil {
		rt.homes = task.Table
	}
	c, err := spec.New(rt)
	require.NoError(t, err)
	return half{c, rt}
}

// sections prints the contents of an output and empties it.
func sections(o *exec.Output) (all []string) {
	for _, g := range o.Touched() {
		all = append(all, fmt.Sprintf("%d: %d %q", g, o.Section(g).Items, o.Section(g).Data))
	}
	o.Reset()
	return all
}

// A chain on disk and its twin in memory receive the same items, some of them late, event times,
// interruptions and commits. Key groups move away, and from time to time both chains are rebuilt
// from their folded changes, in any order. Their outputs and changes are the same.
func TestChainsOnDiskAreThoseInMemory(t *testing.T) {
	p := openPebble(t)
	for name, build := range stages {
		t.Run(name, func(t *testing.T) {
			job := operators.NewJob("twins")
			source := func(name string) keyed {
				src := operators.FromSource(job, name, optest.Items[note](0, nil), noteSerde)
				return operators.KeyBy(src, "by "+name, serde.String, func(h *note) string { return h.Key })
			}
			left, right := source("a"), source("b")
			build(job, left, right)
			plan, err := job.Plan()
			require.NoError(t, err)
			var spec *exec.StageSpec
			for i := range plan.Stages {
				if s := &plan.Stages[i]; len(s.Inputs) > 0 && !s.Sink && s.Partitions == 0 && len(s.Outputs) > 0 {
					spec = s
				}
			}
			rapid.Check(t, func(t *rapid.T) { twinStage(t, p, spec) })
		})
	}
}

func twinStage(t *rapid.T, p *state.Pebble, spec *exec.StageSpec) {
	var task *state.Task
	var memory, disk half
	state := map[string][]byte{} // table, group and key, as in the change log → value
	begin := func() {
		if task != nil {
			require.NoError(t, task.Close())
		}
		task = p.Task()
		memory, disk = newHalf(t, spec, nil), newHalf(t, spec, task)
	}
	begin()
	defer func() { require.NoError(t, task.Close()) }()
	w, moved := int64(0), uint64(0)
	both := func(f func(h half)) {
		f(memory)
		f(disk)
	}
	commit := func() {
		log := [2]*exec.Output{exec.NewOutput(groups), exec.NewOutput(groups)}
		for i, h := range []half{memory, disk} {
			require.NoError(t, h.Flush())
			for k, table := range h.Tables() {
				table.Changes(k, log[i])
			}
		}
		for i := range memory.rt.outs {
			require.Equal(t, sections(memory.rt.outs[i]), sections(disk.rt.outs[i]))
		}
		for g := range groups {
			fold(t, state, g, log[0].Section(g).Data)
		}
		require.Equal(t, sections(log[0]), sections(log[1]))
		require.Equal(t, memory.rt.late, disk.rt.late)
		for i, table := range memory.Tables() {
			require.Equal(t, table.Len(), disk.Tables()[i].Len(), table.Name())
		}
		require.NoError(t, task.Err())
	}
	advance := func(to int64, budget int) {
		for done := false; !done; {
			bounds, budget := exec.Bounds{Time: to}, exec.Budget{Bytes: budget}
			a, err := memory.Advance(bounds, budget)
			require.NoError(t, err)
			b, err := disk.Advance(bounds, budget)
			require.NoError(t, err)
			require.Equal(t, a, b)
			if done = a.All; !done {
				commit()
			}
		}
		w = to
	}
	// items processes items of the key groups that a task has.
	items := func(t *rapid.T, has func(group int) bool) {
		input := rapid.IntRange(0, len(spec.Inputs)-1).Draw(t, "input")
		by := map[int][]byte{}
		n, last := map[int]int{}, map[int]int64{}
		for range rapid.IntRange(1, 20).Draw(t, "n") {
			x := note{fmt.Sprint("key-", rapid.IntRange(0, 9).Draw(t, "key")), rapid.Int64Range(1, 9).Draw(t, "value")}
			at := w + rapid.Int64Range(-30, 30).Draw(t, "time")
			key := serde.String.Append(nil, &x.Key)
			g := exec.GroupOf(exec.HashKey(key), groups)
			by[g] = noteSerde.Append(append(serde.AppendInt64(by[g], at-last[g]), key...), &x)
			n[g], last[g] = n[g]+1, at
		}
		for g := range groups {
			if n[g] > 0 && has(g) {
				payload := bytes.Clone(by[g])
				units := rapid.IntRange(0, n[g]).Draw(t, "units")
				in := exec.In{Input: input, Group: g, Items: n[g]}
				for all := false; !all; {
					all = true
					var did exec.Did
					both(func(h half) {
						var err error
						did, err = h.Process(&in, payload, exec.Budget{Units: units})
						require.NoError(t, err)
						all = all && did.All
					})
					in.Done += did.Units
					if !all {
						commit()
					}
				}
			}
		}
	}
	advance(w, 0)
	t.Repeat(map[string]func(*rapid.T){
		"items": func(t *rapid.T) { items(t, func(int) bool { return true }) },
		"advance": func(t *rapid.T) {
			advance(w+rapid.Int64Range(1, 25).Draw(t, "by"), rapid.SampledFrom([]int{0, 1, 200}).Draw(t, "budget"))
		},
		"commit": func(*rapid.T) { commit() },
		"move a group away": func(t *rapid.T) {
			if moved++; moved%4 != 0 {
				return
			}
			commit()
			g := rapid.IntRange(0, groups-1).Draw(t, "group")
			both(func(h half) {
				for _, table := range h.Tables() {
					table.Detach(g)
				}
			})
			for k := range state {
				if k[0] == byte(g) {
					delete(state, k)
				}
			}
			commit()
		},
		"take a group again": func(t *rapid.T) {
			if moved++; moved%2 != 0 {
				return
			}
			commit()
			g := rapid.IntRange(0, groups-1).Draw(t, "group")
			var keys []string
			for k := range state {
				if k[0] == byte(g) {
					keys = append(keys, k)
				}
			}
			slices.Sort(keys)
			both(func(h half) {
				var before []int
				for _, table := range h.Tables() {
					before = append(before, table.Len())
					table.Detach(g)
				}
				for _, k := range keys {
					require.NoError(t, h.Tables()[k[1]].Apply(g, 1, []byte(k[2:]), bytes.Clone(state[k])))
				}
				for i, table := range h.Tables() {
					require.NoError(t, table.Restored([]int{g}))
					require.Equal(t, before[i], table.Len(), table.Name())
				}
			})
			both(func(h half) { h.Stand(exec.Bounds{Time: w}) })
		},
		"take all groups as a newcomer, one after the other": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "one in four") > 0 {
				return
			}
			commit()
			begin()
			var has []int
			for _, g := range rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "order") {
				var keys []string
				for k := range state {
					if k[0] == byte(g) {
						keys = append(keys, k)
					}
				}
				slices.Sort(keys)
				both(func(h half) {
					for _, k := range keys {
						require.NoError(t, h.Tables()[k[1]].Apply(g, 1, []byte(k[2:]), bytes.Clone(state[k])))
					}
					for _, table := range h.Tables() {
						require.NoError(t, table.Restored([]int{g}))
					}
					h.Stand(exec.Bounds{Time: w})
				})
				has = append(has, g)
				items(t, func(g int) bool { return slices.Contains(has, g) })
			}
		},
		"restore": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "one in four") > 0 {
				return
			}
			commit()
			begin()
			var keys []string
			for k := range state {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Shuffle(len(keys), func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
			both(func(h half) {
				for _, k := range keys {
					require.NoError(t, h.Tables()[k[1]].Apply(int(k[0]), 1, []byte(k[2:]), bytes.Clone(state[k])))
				}
				for _, table := range h.Tables() {
					require.NoError(t, table.Restored([]int{0, 1, 2, 3}))
				}
			})
			both(func(h half) { h.Stand(exec.Bounds{Time: w}) })
		},
	})
	commit()
}

// fold applies the changes of a section; each says whether its key existed before.
func fold(t require.TestingT, state map[string][]byte, group int, b []byte) {
	take := func() []byte {
		n, k := binary.Uvarint(b)
		require.Positive(t, k)
		v := b[k : k+int(n)]
		b = b[k+int(n):]
		return v
	}
	for len(b) > 0 {
		table, k := binary.Uvarint(b)
		op := b[k]
		b = b[k+1:]
		key := string([]byte{byte(group), byte(table)}) + string(take())
		_, there := state[key]
		require.Equal(t, there, op != 2, "operation %d on key %q", op, key)
		if op != 0 {
			state[key] = bytes.Clone(take())
		} else {
			delete(state, key)
		}
	}
}
