package tasks_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/rescale"
)

// trails is a job whose rows tell which state each item was processed in, and in which order: stage by-key counts the items
// of each key by partition, and by 100 ms with a timer for each; stage by-digit counts what comes from it, and from the source
// itself, by the key's last digit.
type trails struct {
	parts [][]optest.Timed[int64]
	want  []string
}

const trailKeys, trailItems = 40, 1 << 20

// newTrails draws n items in so many partitions. An item is its key, partition and number among those of both.
func newTrails(seed uint64, n, parts int) trails {
	rng := rand.New(rand.NewPCG(seed, 81))
	x := trails{parts: make([][]optest.Timed[int64], parts)}
	next, windows := map[[2]int64]int64{}, map[[2]int64]int{}
	for i := range n {
		at, key, p := int64(i)-rng.Int64N(delay), rng.Int64N(trailKeys)*rng.Int64N(trailKeys)/trailKeys, rng.IntN(parts)
		id := [2]int64{key, int64(p)}
		x.parts[p] = append(x.parts[p], optest.At(at, (key*int64(parts)+int64(p))*trailItems+next[id]))
		x.want = append(x.want, fmt.Sprintf("item %d %d %d", key, p, next[id]), fmt.Sprintf("direct %d %d %d", key, p, next[id]))
		next[id]++
		windows[[2]int64{(at + 1000) / 100, key}]++
	}
	for w, c := range windows {
		x.want = append(x.want, fmt.Sprintf("window %d %d %d", w[0], w[1], c))
	}
	slices.Sort(x.want)
	return x
}

func (x trails) plan(t *testing.T, file string) *operators.Plan {
	job := operators.NewJob("trails")
	in := operators.FromSource(job, "keys", optest.Items(delay, x.parts...), serde.Int64)
	parts := int64(len(x.parts))
	byKey := operators.KeyBy(in, "by-key", serde.Int64, func(v *int64) int64 { return *v / trailItems / parts })
	counted := operators.Process(byKey, "count", func(c *operators.Context[int64, string]) operators.Handler[int64] {
		seen := operators.NewMap(c, "seen", serde.Int64, serde.Int64)
		windows := operators.NewMap(c, "windows", serde.Int64, serde.Int64)
		list := operators.NewList(c, "list", serde.Int64)
		return operators.Handler[int64]{
			Item: func(v *int64) {
				part, n := *v/trailItems%parts, *v%trailItems
				have := seen.Upsert(part)
				if list.Add(c.Time(), v); *have != n {
					c.Emit(fmt.Sprintf("item %d %d %d is number %d", c.Key(), part, n, *have), c.Time())
				} else {
					c.Emit(fmt.Sprintf("item %d %d %d", c.Key(), part, n), c.Time())
				}
				*have++
				w := (c.Time() + 1000) / 100
				*windows.Upsert(w)++
				c.SetEventTimer((w-10)*100 + 100)
			},
			Timers: operators.Timers{OnEvent: func(at int64) {
				w := (at+1000)/100 - 1
				n, listed := int64(0), windows.Get(w)
				for _, e := range list.All() {
					if (e.Time+1000)/100 == w {
						n++
					}
				}
				list.DropBefore(at)
				if listed == nil || *listed != n {
					c.Emit(fmt.Sprintf("window %d %d: the list has %d", w, c.Key(), n), at)
					return
				}
				windows.Delete(w)
				c.Emit(fmt.Sprintf("window %d %d %d", w, c.Key(), n), at)
			}},
		}
	}).With(serde.String)
	type counting = operators.KV[int64, string]
	byDigit := operators.KeyBy(counted, "by-digit", serde.Int64, func(c *counting) int64 { return c.Key % 10 })
	direct := operators.KeyBy(in, "direct", serde.Int64, func(v *int64) int64 { return *v / trailItems / parts % 10 })
	rows := operators.Process2(byDigit, direct, "digits", func(c *operators.Context[int64, string]) operators.Handler2[counting, int64] {
		seen := [2]operators.MapState[int64, int64]{operators.NewMap(c, "seen", serde.Int64, serde.Int64), operators.NewMap(c, "direct", serde.Int64, serde.Int64)}
		count := func(side int, text string, key, part, n int64) {
			have := seen[side].Upsert(key*parts + part)
			if *have != n {
				text += fmt.Sprintf(", and %d to its digit", *have)
			}
			*have++
			c.Emit(text, c.Time())
		}
		return operators.Handler2[counting, int64]{
			Left: func(x *counting) {
				var key, part, n int64
				if _, err := fmt.Sscanf(x.Value, "item %d %d %d", &key, &part, &n); err != nil {
					c.Emit(x.Value, c.Time())
					return
				}
				count(0, x.Value, key, part, n)
			},
			Right: func(v *int64) {
				key, part, n := *v/trailItems/parts, *v/trailItems%parts, *v%trailItems
				count(1, fmt.Sprintf("direct %d %d %d", key, part, n), key, part, n)
			},
		}
	}).With(serde.String)
	operators.ToSink(rows, "out", operators.FileSink(file, func(dst []byte, r *operators.KV[int64, string]) []byte {
		return append(append(dst, r.Value...), '\n')
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

// aReroute draws a routing table, and in half of the cases owners.
func aReroute(rng *rand.Rand, job interface{ Layout() *layout.Layout }, stage string) tasks.Reroute {
	l := job.Layout()
	s := slices.IndexFunc(l.Plan.Stages, func(x exec.StageSpec) bool { return x.Name == stage })
	st := &l.Stages[s]
	r := tasks.Reroute{Stage: stage}
	used := map[int]bool{}
	for slot := st.Hashed(); slot < st.Groups; slot++ {
		key := rng.Int64N(trailKeys)
		enc := serde.Int64.Append(nil, &key)
		hash := exec.HashKey(enc)
		p := route.Single(enc)
		group := exec.GroupOf(hash, st.Hashed())
		switch {
		case rng.IntN(3) == 0:
			continue
		case used[group]:
			continue
		case rng.IntN(2) == 0:
			p = route.Part{Group: group, Sub: rng.IntN(8), N: 1 + rng.IntN(8)}
		}
		used[group] = true
		r.Places = append(r.Places, route.Place{Part: p, Slot: slot})
	}
	if rng.IntN(2) == 0 {
		for range st.Owner {
			r.Owners = append(r.Owners, rng.IntN(st.Tasks))
		}
		for task := range st.Tasks { // each has one
			r.Owners[task] = task
		}
	}
	return r
}

// Tables are replaced all the time while the job runs: each item of a key is processed in the order of its partition, on the
// state of all items before it, once, and each timer fires once.
func TestRerouted(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 82))
			x := newTrails(seed, 60_000, 2)
			file := filepath.Join(t.TempDir(), "out")
			o := tasks.Options{Parallelism: 1 + rng.IntN(3), Groups: 8, Slots: 4, CommitInterval: time.Millisecond, Logger: quiet, Lead: 8 << 10, Protocol: []string{"fused", "marker"}[seed%2]}
			job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), x.plan(t, file), o)
			require.NoError(t, err)
			n := 0
			for ; ; n++ {
				err := job.Reroute(t.Context(), aReroute(rng, job, []string{"by-key", "by-digit"}[rng.IntN(2)]))
				if errors.Is(err, tasks.ErrEnded) || errors.Is(err, rescale.ErrStageEnded) {
					break
				}
				require.NoError(t, err)
			}
			require.NoError(t, job.Wait())
			sameRows(t, x.want, lines(t, file))
			t.Log(n, "tables")
		})
	}
}

// A table that was chosen for other owners, or for another table, is not adopted.
func TestRerouteOfOthers(t *testing.T) {
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), newTrails(1, 200_000, 2).plan(t, filepath.Join(t.TempDir(), "out")), tasks.Options{
		Parallelism: 2, Groups: 8, Slots: 4, CommitInterval: time.Millisecond, Logger: quiet,
	})
	require.NoError(t, err)
	defer job.Stop()
	s := slices.IndexFunc(job.Layout().Plan.Stages, func(x exec.StageSpec) bool { return x.Name == "by-key" })
	have := job.Layout().Stages[s].Owner
	other := slices.Clone(have)
	other[0] = 1 - other[0]
	places := []route.Place{{Part: route.Part{Group: 3, Sub: 2, N: 4}, Slot: 9}}
	for _, r := range []tasks.Reroute{{Have: other}, {Have: have, Epoch: 1}} {
		r.Stage, r.Places = "by-key", places
		require.ErrorIs(t, job.Reroute(t.Context(), r), rescale.ErrChanged)
	}
	table, err := job.Table(s)
	require.NoError(t, err)
	require.Zero(t, table.Epoch)
	require.NoError(t, job.Reroute(t.Context(), tasks.Reroute{Stage: "by-key", Places: places, Have: have}))
	table, err = job.Table(s)
	require.NoError(t, err)
	require.EqualValues(t, 1, table.Epoch)
	require.Equal(t, places, table.Places())
	none, err := job.Table(0)
	require.NoError(t, err)
	require.Nil(t, none)
}

// Tasks die, the process is started again, and stages get more tasks and fewer, while tables are replaced; snapshots are made,
// and the log is trimmed. With one of the protocols state is on disk, of which next to nothing stays in memory.
func TestReroutedOverCrashes(t *testing.T) {
	seeds := 2 * uint64(len(tallies)) // each kind with each protocol
	if os.Getenv("TAILRACE_SOAK") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 83))
		parallelism, kinds := 1+rng.IntN(3), slices.Sorted(maps.Keys(tallies))
		kind := kinds[int(seed/2)%len(kinds)]
		t.Run(fmt.Sprint(seed, " ", kind), func(t *testing.T) {
			t.Parallel()
			file, log := filepath.Join(t.TempDir(), "out"), mem.New(mem.Options{})
			x := tallies[kind](seed, file, parallelism)
			o := tasks.Options{
				Parallelism: parallelism, Groups: 8, Slots: 4, CommitInterval: time.Millisecond, Logger: quiet, Lead: 8 << 10, Protocol: []string{"fused", "marker"}[seed%2],
				TrimBytes: 1, TrimInterval: time.Millisecond, Standbys: rng.IntN(2),
			}
			if rng.IntN(2) > 0 { // commits between items, and records in parts
				o.CommitBytes = 1 << 10
			}
			if (seed/2+seed)%2 == 0 {
				o.State, o.CommitInterval = onDisk(t), 5*time.Millisecond
			}
			if rng.IntN(3) > 0 {
				o.Checkpoints, o.SnapshotInterval = storetest.NewMem(), time.Millisecond
			}
			tables, moves := 0, 0
			overCrashes(t, rng, 12_000, func() *tasks.Job {
				job, err := tasks.Start(t.Context(), log, x.plan(t), o)
				require.NoError(t, err)
				return job
			}, func(job *tasks.Job, life int) {
				goals := rand.New(rand.NewPCG(seed, uint64(life)))
				for {
					stage := x.stages[goals.IntN(len(x.stages))]
					var err error
					switch goals.IntN(4) {
					case 0:
						_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: stage, Tasks: 1 + goals.IntN(4), Mode: aMode(goals)})
						moves++
					case 1:
						if !strings.HasPrefix(kind, "key") { // whose items come from one partition a task
							_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "keys", Tasks: 1 + goals.IntN(2)})
							moves++
						}
					default:
						err = job.Reroute(t.Context(), aReroute(goals, job, stage))
						tables++
					}
					if err != nil && !errors.Is(err, rescale.ErrChanged) {
						return
					}
				}
			})
			sameRows(t, x.want, lines(t, file))
			t.Log(tables, "tables,", moves, "rescales")
		})
	}
}
