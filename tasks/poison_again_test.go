package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// letters reads a job's dead letters.
func letters(t *testing.T, log sharedlog.Log) (all []tasks.DeadLetter) {
	t.Helper()
	require.NoError(t, tasks.ReadDeadLetters(t.Context(), log, "poisoned", func(_ tasks.DeadLetterID, l *tasks.DeadLetter) error {
		all = append(all, *l)
		return nil
	}))
	return all
}

// good requires that each number that is not poison is a row, once.
func good(t *testing.T, rows []int64) {
	t.Helper()
	want := map[int64]int{}
	for i := range int64(poisonItems) {
		if !bad(i) {
			want[i] = 1
		}
	}
	require.Equal(t, want, count(rows))
}

// An item that waits for its time fails, and so does the call that follows the last item of that
// time: two letters, and the rows of all others.
func TestPoisonItemAndOnTime(t *testing.T) {
	p := poisoned{build: func(in operators.Stream[int64], out operators.Sink[int64]) {
		keyed := operators.KeyBy(in, "by-key", serde.Int64, func(n *int64) int64 { return *n % 7 })
		operators.ToSink(operators.Map(operators.Process(keyed, "later", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
			ends := operators.NewValue(c, "ends", serde.Int64)
			return operators.Handler[int64]{
				Item: func(n *int64) { c.Emit(sick(*n), c.Time()) },
				Timers: operators.Timers{OnTime: func(at int64) {
					*ends.Upsert()++
					sick(at)
				}},
			}
		}, operators.InOrder()), func(kv *operators.KV[int64, int64]) int64 { return kv.Value }), "out", out)
	}}
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			log, rows, err := p.run(t, tasks.Options{Protocol: protocol, OnError: tasks.OnErrorDeadLetter})
			require.NoError(t, err)
			good(t, rows)
			want, got := map[string]int{}, map[string]int{}
			for i := 13; i < poisonItems; i += 100 {
				want[fmt.Sprintf("item %d", i)], want[fmt.Sprintf("OnTime of key %q at %d", strconv.Itoa(i%7), i)] = 1, 1
			}
			for _, l := range letters(t, log) {
				for name := range want {
					if len(l.Text) > 0 && contains(l.Text, name) {
						got[name]++
					}
				}
			}
			require.Equal(t, want, got)
		})
	}
}

// contains reports whether a timer's text contains name, followed by a space or the end.
func contains(text, name string) bool {
	for i := 0; i+len(name) <= len(text); i++ {
		if text[i:i+len(name)] == name && (i+len(name) == len(text) || text[i+len(name)] == ' ') {
			return true
		}
	}
	return false
}

// The failing item of a source's first batch equals earlier items of the batch. The poison is found
// nevertheless.
func TestPoisonAmongEqualItems(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			var items []optest.Timed[int64]
			for i := range poisonItems {
				items = append(items, optest.At(0, int64(0)))
				if i == 705 { // neither the first nor alone in its batch
					items[i].Value = 13
				}
			}
			job := operators.NewJob("poisoned")
			out := optest.Collect[int64](nil)
			panes := operators.PreAggregate(operators.FromSource(job, "in", optest.Items(0, items), serde.Int64), "panes", serde.Int64,
				func(n *int64) int64 { return sick(*n) }, operators.Tumbling(time.Second), operators.Counting[int64]())
			operators.ToSink(operators.Map(operators.CombineWindows(panes), func(kv *operators.KV[int64, operators.Windowed[int64]]) int64 { return kv.Value.Value }), "out", out)
			log, err := runPlan(t, job, tasks.Options{Protocol: protocol, OnError: tasks.OnErrorDeadLetter, CommitInterval: time.Minute})
			require.NoError(t, err)
			require.Equal(t, []int64{poisonItems - 1}, out.Rows)
			require.Len(t, letters(t, log), 1)
		})
	}
}

// A letter, and the error of a job that fails, name the record of the item, also where records wait
// until a marker makes them count.
func TestPoisonNamesTheRecord(t *testing.T) {
	p := poisons[0]
	require.Equal(t, "map", p.name)
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			log, _, err := p.run(t, tasks.Options{Protocol: protocol, OnError: tasks.OnErrorDeadLetter})
			require.NoError(t, err)
			all := letters(t, log)
			require.Len(t, all, poisonItems/100)
			r, err := tasks.NewReader(t.Context(), log, "poisoned", "spread", false)
			require.NoError(t, err)
			defer r.Close()
			at := map[int64]uint64{} // LSN of each item's record
			for {
				sections, err := r.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				for _, s := range sections {
					in := serde.NewReader(s.Data)
					last := int64(0)
					for range s.Items {
						last += in.Int64()
						require.Equal(t, last, in.Int64())
						at[last] = uint64(s.LSN)
					}
					require.NoError(t, in.Err())
				}
			}
			for _, l := range all {
				require.Equal(t, at[l.Time], l.LSN)
				require.Contains(t, l.Error, fmt.Sprintf("record at LSN %d, ", l.LSN))
			}
		})
	}
}

// Each item counts once in the job's counters, however often it was processed in failed instances
// or in undone calls. Late items too.
func TestPoisonCountsOnce(t *testing.T) {
	for _, state := range []bool{true, false} {
		for _, protocol := range []string{"fused", "marker", "txn"} {
			t.Run(fmt.Sprintf("%v/%s", state, protocol), func(t *testing.T) {
				t.Parallel()
				p := poisoned{build: func(in operators.Stream[int64], out operators.Sink[int64]) {
					keyed := operators.KeyBy(in, "by-key", serde.Int64, func(n *int64) int64 { return *n % 7 })
					operators.ToSink(operators.Map(operators.Process(keyed, "counts", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
						var n operators.Value[int64]
						if state {
							n = operators.NewValue(c, "n", serde.Int64)
						}
						return operators.Handler[int64]{Item: func(v *int64) {
							c.Count("seen", 1)
							c.Late()
							if state {
								*n.Upsert()++
							}
							c.Emit(sick(*v), c.Time())
						}}
					}), func(kv *operators.KV[int64, int64]) int64 { return kv.Value }), "out", out)
				}}
				plan, out := p.plan(t)
				log, o := options(tasks.Options{Protocol: protocol, OnError: tasks.OnErrorSkip, CommitInterval: 20 * time.Millisecond})
				j, err := tasks.Start(t.Context(), log, plan, o)
				require.NoError(t, err)
				require.NoError(t, j.Wait())
				good(t, out.Rows)
				for _, s := range j.Status() {
					if s.Stage == "by-key" {
						require.Equal(t, map[string]int64{"seen": poisonItems - poisonItems/100}, s.Counters)
						require.EqualValues(t, poisonItems-poisonItems/100, s.Late)
						require.EqualValues(t, poisonItems/100, s.Skipped)
					}
				}
			})
		}
	}
}

// Items, timers and pairs of a join fail, in stages of four tasks, while the job is killed now and
// then and its log reopened: each other row is there once, and so is each letter.
func TestPoisonOverCrashes(t *testing.T) {
	const n = 1500
	parts := make([][]optest.Timed[int64], 3)
	var want []string
	poison := map[string]int{}
	for i := range int64(n) {
		parts[i%3] = append(parts[i%3], optest.At(i, i))
		switch i % 100 {
		case 13, 31, 77:
			poison[fmt.Sprint(i)] = 1
		default:
			want = append(want, fmt.Sprint(i))
		}
	}
	slices.Sort(want)
	plan := func(file string) *operators.Plan {
		job := operators.NewJob("poisoned")
		src := operators.FromSource(job, "in", slow{optest.Items(0, parts...), 4}, serde.Int64)
		fails := func(v, at int64) {
			if v%100 == at {
				panic(fmt.Sprintf("no %d", v))
			}
		}
		timed := operators.Process(operators.KeyBy(src, "by-rest", serde.Int64, func(v *int64) int64 { return *v % 20 }), "later", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
			seen := operators.NewValue(c, "seen", serde.Int64)
			return operators.Handler[int64]{
				Item: func(v *int64) {
					*seen.Upsert()++
					c.SetEventTimer(*v + 50)
					fails(*v, 13)
				},
				Timers: operators.Timers{OnEvent: func(at int64) {
					*seen.Upsert()++
					c.Emit(at-50, at)
					fails(at-50, 31)
				}},
			}
		})
		left := operators.KeyBy(operators.Map(timed, func(kv *operators.KV[int64, int64]) int64 { return kv.Value }).With(serde.Int64), "left", serde.Int64, self)
		right := operators.KeyBy(src, "right", serde.Int64, self)
		pairs := operators.JoinStreams(left, right, "pairs", operators.Forever, func(_, l, _ *int64) int64 {
			fails(*l, 77)
			return *l
		})
		operators.ToSink(pairs, "out", operators.FileSink(file, func(dst []byte, kv *operators.KV[int64, int64]) []byte {
			return append(strconv.AppendInt(dst, kv.Value, 10), '\n')
		}, false))
		plan, err := job.Plan()
		require.NoError(t, err)
		return plan
	}
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(36, 7))
			dir := t.TempDir()
			file := filepath.Join(dir, "out")
			o := tasks.Options{
				Protocol: protocol, Parallelism: 4, Groups: 8, OnError: tasks.OnErrorDeadLetter, CommitInterval: 2 * time.Millisecond, CommitBytes: 4 << 10,
				TrimBytes: 1, TrimInterval: time.Millisecond, SnapshotInterval: 5 * time.Millisecond, Logger: quiet,
			}
			got, crashes := map[string]int{}, 0
			for done := false; !done; {
				log := open(t, dir)
				var err error
				o.Checkpoints, err = checkpoint.OpenPebble(filepath.Join(dir, "checkpoints"))
				require.NoError(t, err)
				job, err := tasks.Start(t.Context(), log, plan(file), o)
				require.NoError(t, err)
				life := time.Hour
				if crashes < 8 {
					life = time.Duration(20+rng.IntN(60)) * time.Millisecond
				}
				after := time.NewTimer(life)
				select {
				case <-after.C:
					job.Stop()
				case <-job.Done():
				}
				if done = job.Wait() == nil; !done {
					require.ErrorIs(t, job.Wait(), context.Canceled)
					crashes++
				} else {
					for _, l := range letters(t, log) {
						got[itself(&l)]++
					}
				}
				require.NoError(t, o.Checkpoints.Close())
				require.NoError(t, log.Close())
			}
			require.NotZero(t, crashes)
			sameRows(t, want, lines(t, file))
			require.Equal(t, poison, got)
		})
	}
}

// A job whose source is not partitioned as it says fails by its own fault, so that it is not restarted for ever, and
// under no policy is an item left out for that.
func TestAWrongClaimIsNoPoison(t *testing.T) {
	for _, policy := range []string{tasks.OnErrorFail, tasks.OnErrorSkip, tasks.OnErrorDeadLetter} {
		for _, behind := range []string{"source", "forward"} {
			for _, stateful := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%t", policy, behind, stateful), func(t *testing.T) {
					job := operators.NewJob("wrong")
					in := operators.FromSource(job, "in", optest.Items(0, ints(100), nil), serde.Int64)
					if behind == "forward" {
						in = operators.Forward(in, "forward")
					}
					keyed := operators.KeyAhead(in, serde.Int64, self, func(n *int64) int { return int(*n / 60) })
					if stateful {
						operators.ToSink(operators.Count(keyed), "out", operators.FuncSink(func(*operators.Batch[operators.Change[int64, int64]]) error { return nil }))
					} else {
						operators.ToSink(keyed, "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, int64]]) error { return nil }))
					}
					_, err := runPlan(t, job, tasks.Options{OnError: policy})
					var user *tasks.UserError
					require.ErrorAs(t, err, &user)
					require.ErrorContains(t, err, "came in partition 0 and belongs in 1: the source is not partitioned by this key")
				})
			}
		}
	}
}

// runPlan runs a job that must end within a minute.
func runPlan(t *testing.T, job *operators.Job, o tasks.Options) (sharedlog.Log, error) {
	t.Helper()
	plan, err := job.Plan()
	require.NoError(t, err)
	log, o := options(o)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return log, tasks.Run(ctx, log, plan, o)
}

// options fills in the options of the jobs with poison and creates a log for them.
func options(o tasks.Options) (*mem.Log, tasks.Options) {
	o.Parallelism, o.Groups, o.Checkpoints, o.Logger = 1, 4, storetest.NewMem(), quiet
	return mem.New(mem.Options{}), o
}
