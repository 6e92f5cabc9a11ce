package tasks_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/savepoint"
)

const sessionGap = 40 // ms

// visits returns the rows of counts and those of each key's sessions, computed by plain loops.
func (w world) visits() []string {
	times := map[int64][]int64{}
	for _, p := range w.parts {
		for _, it := range p {
			times[it.Value] = append(times[it.Value], it.Time)
		}
	}
	rows := slices.Clone(w.want)
	for key, ts := range times {
		slices.Sort(ts)
		for from, i := 0, 1; i <= len(ts); i++ {
			if i == len(ts) || ts[i]-ts[i-1] >= sessionGap {
				rows = append(rows, fmt.Sprintf("visit %d %d %d", ts[from], key, i-from))
				from = i
			}
		}
	}
	slices.Sort(rows)
	return rows
}

// version is the job after n upgrades. All versions have the same rows.
//
//	1  windows and sessions by key
//	2  before them a repartition, a filter, and a function with state
//	3  that function is gone, and there is another one, with a Uid
func version(t *testing.T, n int, file string, src operators.Source[int64]) *operators.Plan {
	job := operators.NewJob("visits")
	keys := operators.FromSource(job, "keys", src, serde.Int64)
	if n == 2 {
		keys = operators.Rebalance(operators.Filter(keys, func(k *int64) bool { return *k >= 0 }), "hop")
	}
	in := operators.KeyBy(keys, "by-key", serde.Int64, func(k *int64) int64 { return *k })
	numbered := func(name string) {
		in = operators.Process(in, name, func(c *operators.Context[int64, int64]) operators.Handler[int64] {
			seen := operators.NewValue(c, "seen", serde.Int64)
			return operators.Handler[int64]{Item: func(k *int64) {
				*seen.Upsert()++
				c.SetEventTimer(c.Time() + 5)
				c.Emit(*k, c.Time())
			}, Timers: operators.Timers{OnEvent: func(int64) {}}}
		}).With(serde.Int64)
	}
	switch n {
	case 2:
		numbered("numbered")
	case 3:
		numbered("again")
		in = in.Uid("third")
	}
	windows := operators.Map(operators.CountWindows(in, operators.Tumbling(100*time.Millisecond)), func(c *operators.KV[int64, operators.Windowed[int64]]) string {
		return fmt.Sprintf("%d %d %d", c.Value.Start, c.Key, c.Value.Value)
	})
	sessions := operators.Map(operators.AggregateSessions(in, "sessions", sessionGap*time.Millisecond, operators.Counting[int64]()), func(c *operators.KV[int64, operators.Windowed[int64]]) string {
		return fmt.Sprintf("visit %d %d %d", c.Value.Start, c.Key, c.Value.Value)
	})
	operators.ToSink(operators.Merge("rows", windows, sessions), "out", operators.FileSink(file, func(dst []byte, s *string) []byte {
		return fmt.Appendf(dst, "%s\n", *s)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

// A job is stopped with a savepoint and resumes under another plan, twice, with other tasks and
// protocols, and is killed in between: no row is lost, none doubled.
func TestUpgrade(t *testing.T) {
	w := newWorld(3, 30_000, 3)
	want := w.visits()
	seeds := uint64(4)
	if os.Getenv("TAILRACE_SOAK") != "" {
		seeds = 200
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 11))
			dir := t.TempDir()
			file := filepath.Join(dir, "out")
			store := storetest.NewMem()
			log, err := embedded.Open(dir, embedded.Options{FsyncInterval: time.Millisecond, SegmentBytes: 1 << 20, Logger: quiet})
			require.NoError(t, err)
			defer log.Close()
			open := new(atomic.Bool)
			protocols := []string{"fused", "marker", "txn"}
			o := tasks.Options{
				Groups: 8, CommitInterval: time.Millisecond, CommitBytes: 4 << 10, Logger: quiet,
				TrimBytes: 1, TrimInterval: time.Millisecond, Checkpoints: store, SnapshotInterval: time.Duration(1+rng.IntN(5)) * time.Millisecond,
			}
			begin := func(n int, limit uint64) *tasks.Job {
				o.Name = fmt.Sprintf("v%d", n)
				src := gate{optest.Items(delay, w.parts...), open, limit}
				job, err := tasks.Start(t.Context(), log, version(t, n, file, src), o)
				require.NoError(t, err)
				return job
			}
			look := time.NewTicker(time.Millisecond)
			defer look.Stop()
			until := func(job *tasks.Job, items uint64) {
				for n := uint64(0); n < items && !isDone(job); <-look.C {
					n = 0
					for _, s := range job.Status() {
						if s.Stage == "by-key" {
							n += s.Items()
						}
					}
				}
			}
			rows := 0
			for n := 1; n <= 3; n++ {
				o.Parallelism, o.Protocol = 1+rng.IntN(4), protocols[rng.IntN(3)]
				limit := uint64(n*3000 + rng.IntN(500)) // of 10 000 a partition
				open.Store(n == 3)
				job := begin(n, limit)
				for kill := range rng.IntN(3) {
					until(job, uint64(rng.IntN(2000*(kill+1))))
					job.Stop()
					job = begin(n, limit)
				}
				if n == 3 {
					require.NoError(t, job.Wait())
					break
				}
				until(job, uint64(rng.IntN(5000)))
				name := fmt.Sprint("before-", n+1)
				m, err := job.Savepoint(t.Context(), name, true)
				require.NoError(t, err)
				require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
				require.NotZero(t, m.Entries)
				now := len(lines(t, file))
				require.Less(t, now, len(want), "there is nothing left to do")
				require.GreaterOrEqual(t, now, rows)
				rows = now
				o.From, o.DropState = name, nil
				if n == 2 {
					o.DropState = []string{"by-key/numbered"}
				}
			}
			sameRows(t, want, lines(t, file))
		})
	}
}

// A plan that does not fit is refused before anything starts, with the remedy; the job is then not
// in the log.
func TestUpgradeRefused(t *testing.T) {
	w := newWorld(4, 10_000, 2)
	dir := t.TempDir()
	store, log := storetest.NewMem(), mem.New(mem.Options{})
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 1000}
	o := tasks.Options{Name: "a", Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: store}
	job, err := tasks.Start(t.Context(), log, version(t, 2, filepath.Join(dir, "a"), g), o)
	require.NoError(t, err)
	_, err = job.Savepoint(t.Context(), "one", true)
	require.NoError(t, err)
	require.ErrorIs(t, job.Wait(), tasks.ErrDrained)

	// Without a savepoint, the state would be read as that of other operators: the hashes of the
	// two plans cover streams and stages, which are the same.
	plain := counts(t, filepath.Join(dir, "c"), g)
	job, err = tasks.Start(t.Context(), log, plain, tasks.Options{Name: "c", Parallelism: 1, Groups: 8, Logger: quiet})
	require.NoError(t, err)
	job.Stop()
	changed := counts(t, filepath.Join(dir, "c"), g)
	changed.Stages[2].Tables = append([]exec.TableSpec{{Name: "new", Type: "map"}}, changed.Stages[2].Tables...)
	_, err = tasks.Start(t.Context(), log, changed, tasks.Options{Name: "c", Parallelism: 1, Groups: 8, Logger: quiet})
	require.ErrorIs(t, err, tasks.ErrSettings)
	require.ErrorContains(t, err, "state tables was")
	require.ErrorContains(t, err, "--from")
	spec, err := tasks.Describe(plain, tasks.Options{Name: "c", Parallelism: 1, Groups: 8})
	require.NoError(t, err)
	_, err = tasks.Join(t.Context(), log, spec, "c", changed, tasks.Options{Logger: quiet})
	require.ErrorIs(t, err, tasks.ErrGraph)
	require.ErrorContains(t, err, `table 0 of stage "by-key" is "window.fired" (map uint8 → fired up to) in the job, and "new" (map) in the program`)

	o.Name, o.From = "b", "one"
	_, err = tasks.Start(t.Context(), log, version(t, 1, filepath.Join(dir, "b"), g), o)
	require.ErrorIs(t, err, savepoint.ErrMismatch)
	for _, name := range []string{"numbered.event-timers", "numbered.wall-timers", "numbered.seen"} {
		require.ErrorContains(t, err, fmt.Sprintf("table %q", name))
	}
	require.ErrorContains(t, err, "(--drop-state by-key/numbered)")
	o.DropState = []string{"by-key/numbered", "by-key/other"}
	_, err = tasks.Start(t.Context(), log, version(t, 1, filepath.Join(dir, "b"), g), o)
	require.ErrorContains(t, err, `nothing to drop by the name "by-key/other"`)
	o.From = ""
	_, err = tasks.Start(t.Context(), log, version(t, 1, filepath.Join(dir, "b"), g), o)
	require.ErrorContains(t, err, "begins from no savepoint")

	// The refused attempts left nothing in the log.
	o.From, o.DropState = "one", []string{"by-key/numbered"}
	g.open.Store(true)
	copied, err := os.ReadFile(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), copied, 0o644))
	job, err = tasks.Start(t.Context(), log, version(t, 1, filepath.Join(dir, "b"), g), o)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	sameRows(t, w.visits(), lines(t, filepath.Join(dir, "b")))
}

// growing is a job that numbers the items it reads, by key, in values that it keeps.
func growing[K comparable, V any](t *testing.T, file string, src operators.Source[int64], keys serde.Serde[K], key func(n int64) K, vals serde.Serde[V], number func(v *V) int64) *operators.Plan {
	job := operators.NewJob("growing")
	in := operators.KeyBy(operators.FromSource(job, "keys", src, serde.Int64), "by-key", keys, func(n *int64) K { return key(*n) })
	rows := operators.Process(in, "visits", func(c *operators.Context[K, string]) operators.Handler[int64] {
		v := operators.NewValue(c, "visit", vals)
		return operators.Handler[int64]{Item: func(n *int64) { c.Emit(fmt.Sprint(*n, " ", number(v.Upsert())), c.Time()) }}
	})
	operators.ToSink(rows, "out", operators.FileSink(file, func(dst []byte, kv *operators.KV[K, string]) []byte {
		return fmt.Appendf(dst, "%s\n", kv.Value)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

// The types of state gain fields: matched by name in JSON and protobuf, by version in bytes.
func TestRecordsGainFields(t *testing.T) {
	w := newWorld(5, 4000, 2)
	var want []string
	counts := map[int64]int{}
	for _, p := range w.parts {
		for _, it := range p {
			counts[it.Value]++
			want = append(want, fmt.Sprint(it.Value, " ", counts[it.Value]))
		}
	}
	slices.Sort(want)
	type plan func(t *testing.T, file string, src operators.Source[int64]) *operators.Plan
	own := func(n int64) int64 { return n }
	before := func() plan {
		type visit struct{ N int64 }
		return func(t *testing.T, file string, src operators.Source[int64]) *operators.Plan {
			return growing(t, file, src, serde.Int64, own, serde.JSON[visit](), func(v *visit) int64 { v.N++; return v.N })
		}
	}()
	type visit struct {
		N     int64
		Since string
		Tags  []string
	}
	number := func(v *visit) int64 {
		v.N++
		v.Since, v.Tags = "v2", append(v.Tags, "x")
		return v.N
	}
	one := serde.New("visit 1",
		func(dst []byte, v *visit) []byte { return serde.AppendInt64(dst, v.N) },
		func(r *serde.Reader, v *visit) { *v = visit{N: r.Int64()} })
	two := serde.New("visit 2",
		func(dst []byte, v *visit) []byte { return serde.AppendString(serde.AppendInt64(dst, v.N), v.Since) },
		func(r *serde.Reader, v *visit) { *v = visit{N: r.Int64(), Since: r.String()} })
	of := func(sd serde.Serde[visit]) plan {
		return func(t *testing.T, file string, src operators.Source[int64]) *operators.Plan {
			return growing(t, file, src, serde.Int64, own, sd, number)
		}
	}
	proto1 := func(t *testing.T, file string, src operators.Source[int64]) *operators.Plan {
		return growing(t, file, src, serde.Int64, own, serde.Proto[*visitPB[visitFields1]](), countVisitPB[visitFields1])
	}
	proto2 := func(t *testing.T, file string, src operators.Source[int64]) *operators.Plan {
		return growing(t, file, src, serde.Int64, own, serde.Proto[*visitPB[visitFields2]](), countVisitPB[visitFields2])
	}
	short := func() plan {
		type page struct{ N int64 }
		return func(t *testing.T, file string, src operators.Source[int64]) *operators.Plan {
			return growing(t, file, src, serde.JSON[page](), func(n int64) page { return page{n} }, one, number)
		}
	}()
	type page struct{ N, Host int64 }
	long := func(t *testing.T, file string, src operators.Source[int64]) *operators.Plan {
		return growing(t, file, src, serde.JSON[page](), func(n int64) page { return page{N: n} }, one, number)
	}
	for _, c := range []struct {
		name     string
		old, now plan
		refused  string
	}{
		{"json", before, of(serde.JSON[visit]()), ""},
		{"protobuf", proto1, proto2, ""},
		{"protobuf, the program before", proto2, proto1, ""},
		{"versions", of(serde.Versions("visit", one)), of(serde.Versions("visit", one, two)), ""},
		{"fewer versions", of(serde.Versions("visit", one, two)), of(serde.Versions("visit", one)), "it is of type (map int64 → visit, versions 1 to 1) now, which does not read that"},
		{"another form", of(one), of(two), "it is of type (map int64 → visit 2) now"},
		{"json key", short, long, "a key keeps its bytes, its type (json(tasks_test.page)) cannot gain fields"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "out")
			store, log := storetest.NewMem(), mem.New(mem.Options{})
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 1000}
			o := tasks.Options{Name: "old", Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: store}
			job, err := tasks.Start(t.Context(), log, c.old(t, file, g), o)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return job.Status()[0].ItemsIn > 500 }, time.Minute, time.Millisecond)
			_, err = job.Savepoint(t.Context(), "one", true)
			require.NoError(t, err)
			require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
			require.Less(t, len(lines(t, file)), len(want))
			g.open.Store(true)
			o.Name, o.From = "new", "one"
			err = tasks.Run(t.Context(), log, c.now(t, file, g), o)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			sameRows(t, want, lines(t, file))
		})
	}
}
