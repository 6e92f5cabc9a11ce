package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// poisoned is a job with a function that panics, or returns an error, for some items.
type poisoned struct {
	name string
	// build makes the job: each input number is output once, except for the poison.
	build func(in operators.Stream[int64], out operators.Sink[int64])
	stage string // that fails
	text  string // of the error
	state bool   // the function has state, or the stage is a sink
	key   string // of the letter of 113, "" if it has none
	raw   bool   // the stage's input cannot be decoded
}

// says returns the text of the error for n.
func (p *poisoned) says(n int64) string {
	return strings.NewReplacer("113", fmt.Sprint(n), "114", fmt.Sprint(n+1), "119", fmt.Sprint(n+6)).Replace(p.text)
}

func bad(n int64) bool { return n%100 == 13 }

// sick is a user function.
func sick(n int64) int64 {
	if bad(n) {
		panic(fmt.Sprintf("no %d", n))
	}
	return n
}

func refuse(n int64) int64 {
	if bad(n) {
		operators.Fail(fmt.Errorf("gives up %d", n))
	}
	return n
}

var said = regexp.MustCompile(`(?:panic: no|gives up) (\d+)`)

// itself returns the poison of a letter, as its error names it.
func itself(l *tasks.DeadLetter) string {
	if m := said.FindStringSubmatch(l.Error); m != nil {
		return m[1]
	}
	return "?"
}

func self(n *int64) int64 { return *n }

var fragile = serde.New("fragile", func(dst []byte, n *int64) []byte { return serde.AppendInt64(dst, *n) }, func(r *serde.Reader, n *int64) {
	if *n = r.Int64(); bad(*n) {
		r.Fail(errors.New("cannot be read"))
	}
})

// brittle is a serde that panics where fragile returns an error.
var brittle = serde.New("brittle", func(dst []byte, n *int64) []byte { return serde.AppendInt64(dst, *n) }, func(r *serde.Reader, n *int64) {
	*n = sick(r.Int64())
})

// boxed is an item whose decoded value differs each time, and equals others at first.
type boxed struct {
	pad string
	n   *int64
}

var boxes = serde.New("boxed", func(dst []byte, b *boxed) []byte { return serde.AppendInt64(dst, *b.n) }, func(r *serde.Reader, b *boxed) {
	n := r.Int64()
	*b = boxed{strings.Repeat("x", 300), &n}
})

var poisons = []poisoned{
	{
		name: "map", stage: "spread", text: "panic: no 113",
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			spread := operators.Rebalance(in, "spread")
			operators.ToSink(operators.Map(spread, func(n *int64) int64 { return sick(*n) }), "out", out)
		},
	},
	{
		name: "source", stage: "in", text: "gives up 113",
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			operators.ToSink(operators.Map(in, func(n *int64) int64 { return refuse(*n) }), "out", out)
		},
	},
	{
		name: "key", stage: "in", text: "panic: no 113",
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			keyed := operators.KeyBy(in, "by-key", serde.Int64, func(n *int64) int64 { return sick(*n) })
			operators.ToSink(operators.Map(keyed, func(kv *operators.KV[int64, int64]) int64 { return kv.Value }), "out", out)
		},
	},
	{
		// Some of its output has left the operator already.
		name: "half done", stage: "spread", text: "panic: no 113",
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			spread := operators.Rebalance(in, "spread")
			operators.ToSink(operators.FlatMap(spread, func(n *int64, emit func(int64)) {
				if bad(*n) {
					for range 2000 {
						emit(-1)
					}
				}
				emit(sick(*n))
			}), "out", out)
		},
	},
	{
		name: "state", stage: "by-key", text: "panic: no 113", key: "13", state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			keyed := operators.KeyBy(in, "by-key", serde.Int64, func(n *int64) int64 { return *n % 50 })
			operators.ToSink(operators.Map(operators.Process(keyed, "count", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
				count := operators.NewValue(c, "count", serde.Int64)
				return operators.Handler[int64]{Item: func(n *int64) {
					*count.Upsert()++ // the poison's must not count
					if bad(*n) {
						c.Emit(-1, c.Time())
						sick(*n)
					}
					// Each 50th number has this key; of key 13 every other item is poison.
					want := *n/50 + 1
					if c.Key() == 13 {
						want = (*n/50 + 1) / 2
					}
					if *count.Get() != want {
						panic(fmt.Sprintf("%d is number %d of key %d", *n, *count.Get(), c.Key()))
					}
					c.Emit(*n, c.Time())
				}}
			}), func(kv *operators.KV[int64, int64]) int64 { return kv.Value }), "out", out)
		},
	},
	{
		name: "timer", stage: "by-key", text: `process function "later", timer of key "113" at 113: panic: no 113`, state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			keyed := operators.KeyBy(in, "by-key", serde.Int64, self)
			operators.ToSink(operators.Map(operators.Process(keyed, "later", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
				return operators.Handler[int64]{
					Item:   func(*int64) { c.SetEventTimer(c.Time()) },
					Timers: operators.Timers{OnEvent: func(t int64) { c.Emit(sick(c.Key()), t) }},
				}
			}), func(kv *operators.KV[int64, int64]) int64 { return kv.Value }), "out", out)
		},
	},
	{
		// Items that wait for their time. The good ones with the same key and time as the poison
		// are processed.
		name: "in order", stage: "by-key", text: `process function "later", item 113 of key "0" at 119: panic: no 113`, state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			tens := operators.FlatMap(in, func(n *int64, emit func([]int64)) {
				if *n%10 == 9 {
					emit([]int64{*n - 9, *n - 8, *n - 7, *n - 6, *n - 5, *n - 4, *n - 3, *n - 2, *n - 1, *n})
				}
			})
			one := operators.FlatMap(tens, func(all *[]int64, emit func(int64)) {
				for _, n := range *all {
					emit(n)
				}
			})
			keyed := operators.KeyBy(one.With(serde.Int64), "by-key", serde.Int64, func(*int64) int64 { return 0 })
			operators.ToSink(operators.Map(operators.Process(keyed, "later", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
				seen := operators.NewValue(c, "seen", serde.Int64)
				return operators.Handler[int64]{Item: func(n *int64) {
					*seen.Upsert()++
					c.Emit(sick(*n), c.Time())
					if good := *n - *n/100 - min(*n%100/14, 1) + 1; *seen.Get() != good {
						panic(fmt.Sprintf("%d is number %d, not %d", *n, *seen.Get(), good))
					}
				}}
			}, operators.InOrder()), func(kv *operators.KV[int64, int64]) int64 { return kv.Value }), "out", out)
		},
	},
	{
		name: "in order, boxed", stage: "by-key", text: "panic: no 113", state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			one := operators.Map(in, func(n *int64) boxed { return boxed{n: n} })
			keyed := operators.KeyBy(one.With(boxes), "by-key", serde.Int64, func(*boxed) int64 { return 0 })
			operators.ToSink(operators.Map(operators.Process(keyed, "later", func(c *operators.Context[int64, int64]) operators.Handler[boxed] {
				return operators.Handler[boxed]{Item: func(b *boxed) { c.Emit(sick(*b.n), c.Time()) }}
			}, operators.InOrder()), func(kv *operators.KV[int64, int64]) int64 { return kv.Value }), "out", out)
		},
	},
	{
		name: "window", stage: "by-key", text: `its end of key "113" at 114: panic: no 113`, state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			keyed := operators.KeyBy(in, "by-key", serde.Int64, self)
			counts := operators.CountWindows(keyed, operators.Tumbling(time.Millisecond))
			operators.ToSink(operators.Map(counts, func(kv *operators.KV[int64, operators.Windowed[int64]]) int64 { return sick(kv.Key) }), "out", out)
		},
	},
	{
		name: "partial results", stage: "in", text: "panic: no 113", state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			panes := operators.PreAggregate(in, "panes", serde.Int64, func(n *int64) int64 { return sick(*n) }, operators.Tumbling(time.Second), operators.Counting[int64]())
			operators.ToSink(operators.Map(operators.CombineWindows(panes), func(kv *operators.KV[int64, operators.Windowed[int64]]) int64 { return kv.Key }), "out", out)
		},
	},
	{
		name: "global merge", stage: "in", text: "panic: no 113", state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			count := operators.Counting[int64]()
			count.Add = func(acc, n *int64, _ int64) { *acc += sick(*n) }
			sums := operators.GlobalMerge(in, "sums", serde.Int64, self, count, nil)
			operators.ToSink(operators.Map(sums, func(c *operators.Change[int64, int64]) int64 { return c.Key }), "out", out)
		},
	},
	{
		name: "state beside a source", stage: "in", text: "panic: no 113", state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			keyed := operators.KeyAhead(in, serde.Int64, func(n *int64) int64 { return *n % 50 }, func(*int64) int { return 0 })
			operators.ToSink(operators.Map(operators.Process(keyed, "count", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
				count := operators.NewValue(c, "count", serde.Int64)
				return operators.Handler[int64]{Item: func(n *int64) {
					*count.Upsert()++ // the poison's must not count
					c.Emit(sick(*n), c.Time())
					want := *n/50 + 1
					if c.Key() == 13 {
						want = (*n/50 + 1) / 2
					}
					if *count.Get() != want {
						panic(fmt.Sprintf("%d is number %d of key %d", *n, *count.Get(), c.Key()))
					}
				}}
			}), func(kv *operators.KV[int64, int64]) int64 { return kv.Value }), "out", out)
		},
	},
	{
		name: "window beside a source", stage: "in", text: `its end of key "113" at 114: panic: no 113`, state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			counts := operators.CountWindows(operators.KeyAhead(in, serde.Int64, self, func(*int64) int { return 0 }), operators.Tumbling(time.Millisecond))
			operators.ToSink(operators.Map(counts, func(kv *operators.KV[int64, operators.Windowed[int64]]) int64 { return sick(kv.Key) }), "out", out)
		},
	},
	{
		name: "decoding", stage: "fragile", text: "cannot be read", raw: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			operators.ToSink(operators.Map(operators.Rebalance(in.With(fragile), "fragile"), self), "out", out)
		},
	},
	{
		name: "decoding, a panic", stage: "brittle", text: "panic: no 113", raw: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			operators.ToSink(operators.Map(operators.Rebalance(in.With(brittle), "brittle"), self), "out", out)
		},
	},
	{
		name: "sink", stage: "out", text: "panic: no 113", state: true,
		build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			operators.ToSink(in, "out", sickSink{out})
		},
	},
}

type sickSink struct{ operators.Sink[int64] }

func (s sickSink) Open(task, of int) (operators.SinkWriter[int64], error) {
	w, err := s.Sink.Open(task, of)
	return sickWriter{w}, err
}

type sickWriter struct{ operators.SinkWriter[int64] }

func (w sickWriter) Write(b *operators.Batch[int64]) error {
	for i := range b.Items {
		one := operators.Batch[int64]{Items: b.Items[i : i+1], Times: b.Times[i : i+1], Group: b.Group}
		if sick(b.Items[i]); bad(b.Items[i]) {
			panic("unreachable")
		}
		if err := w.SinkWriter.Write(&one); err != nil {
			return err
		}
	}
	return nil
}

const poisonItems = 1000

func (p *poisoned) plan(t *testing.T) (*operators.Plan, *optest.Collector[int64]) {
	var items []optest.Timed[int64]
	for i := range int64(poisonItems) {
		items = append(items, optest.At(i, i))
	}
	job := operators.NewJob("poisoned")
	out := optest.Collect[int64](nil)
	p.build(operators.FromSource(job, "in", optest.Items(0, items), serde.Int64), out)
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan, out
}

func (p *poisoned) run(t *testing.T, o tasks.Options) (log *mem.Log, rows []int64, err error) {
	plan, out := p.plan(t)
	log = mem.New(mem.Options{})
	o.Parallelism, o.Groups, o.Checkpoints, o.Logger = 1, 4, storetest.NewMem(), quiet
	err = tasks.Run(t.Context(), log, plan, o)
	return log, out.Rows, err
}

// A failing function of the job ends the job with an error that names the operator and the item.
func TestPoisonFails(t *testing.T) {
	for _, p := range poisons {
		for _, protocol := range allProtocols {
			t.Run(p.name+"/"+protocol, func(t *testing.T) {
				_, _, err := p.run(t, tasks.Options{Protocol: protocol})
				require.Error(t, err)
				text := err.Error()
				require.Contains(t, text, fmt.Sprintf("stage %q, task 0: ", p.stage))
				if strings.HasPrefix(protocol, "aligned") && p.stage != "out" {
					return // the error says in which batch
				}
				require.Contains(t, text, p.says(13))
				if strings.Contains(p.text, "panic") {
					require.Regexp(t, `\(tailrace.dev/tailrace/tasks_test.sick poison_test.go:\d+ < tailrace.dev/tailrace/tasks_test.*\)`, text)
				}
			})
		}
	}
}

// With skip and dead-letter the job continues without the items that it cannot process, exactly
// once.
func TestPoisonPassedOver(t *testing.T) {
	for _, p := range poisons {
		for _, protocol := range allProtocols {
			if strings.HasPrefix(protocol, "aligned") && p.state && p.stage != "out" {
				continue // TestPoisonAligned
			}
			if protocol == "unsafe" && p.state {
				continue // unsafe guarantees nothing about state
			}
			for _, policy := range []string{tasks.OnErrorSkip, tasks.OnErrorDeadLetter} {
				if policy == tasks.OnErrorSkip && protocol != "fused" {
					continue // the same but for the letters
				}
				t.Run(p.name+"/"+protocol+"/"+policy, func(t *testing.T) {
					t.Parallel()
					log, rows, err := p.run(t, tasks.Options{Protocol: protocol, OnError: policy})
					require.NoError(t, err)
					want := map[int64]int{}
					poison := map[string]bool{}
					for i := range int64(poisonItems) {
						if bad(i) {
							poison[fmt.Sprint(i)] = true
						} else if !p.raw {
							want[i] = 1
						}
					}
					got := count(rows)
					if p.raw { // the rest of the section cannot be decoded either
						for n := range got {
							require.False(t, bad(n))
						}
					} else {
						require.Equal(t, want, got)
					}
					err = tasks.ReadDeadLetters(t.Context(), log, "poisoned", func(_ tasks.DeadLetterID, l *tasks.DeadLetter) error {
						require.Equal(t, p.stage, l.Stage)
						n := fmt.Sprint(l.Time)
						if l.Timer {
							n = itself(l)
						}
						number, err := strconv.ParseInt(n, 10, 64)
						require.NoError(t, err)
						require.Contains(t, l.Error, p.says(number))
						if !p.raw {
							require.True(t, poison[n], "%s is no poison, or twice there", n)
						}
						delete(poison, n)
						if r := serde.NewReader(l.Data); !l.Timer && !p.raw {
							v := r.Int64()
							if r.Pos() < len(l.Data) { // behind the key
								v = r.Int64()
							}
							require.NoError(t, r.Err())
							require.Equal(t, n, fmt.Sprint(v))
						}
						return nil
					})
					if policy == tasks.OnErrorSkip {
						require.ErrorIs(t, err, tasks.ErrNoDeadLetters)
						return
					}
					require.NoError(t, err)
					if !p.raw { // several of those are in one section
						require.Empty(t, poison)
					}
				})
			}
		}
	}
}

// Where the tasks of a job commit together, a function with state can only fail its task: the state
// before the item exists only in the job's last checkpoint.
func TestPoisonAligned(t *testing.T) {
	for _, p := range poisons {
		if p.name == "state" || p.name == "timer" {
			_, _, err := p.run(t, tasks.Options{Protocol: "aligned", OnError: tasks.OnErrorSkip})
			var user *tasks.UserError
			require.ErrorAs(t, err, &user, p.name)
		}
	}
}

// A function that ends its goroutine, as a test's FailNow does, has not ended its input.
func TestPoisonGoexit(t *testing.T) {
	p := poisoned{name: "Goexit", build: func(in operators.Stream[int64], out operators.Sink[int64]) {
		operators.ToSink(operators.Map(in, func(n *int64) int64 {
			if bad(*n) {
				runtime.Goexit()
			}
			return *n
		}), "out", out)
	}}
	_, _, err := p.run(t, tasks.Options{})
	require.ErrorContains(t, err, "runtime.Goexit")
}

// An error with an empty or a far too long text is handled like others.
func TestPoisonWords(t *testing.T) {
	for text, gives := range map[string]error{
		"given up without an error": nil,
		"… (20971520 bytes)":        errors.New(strings.Repeat("e", 20<<20)),
	} {
		p := poisoned{name: text, build: func(in operators.Stream[int64], out operators.Sink[int64]) {
			operators.ToSink(operators.Map(in, func(n *int64) int64 {
				if bad(*n) {
					operators.Fail(gives)
				}
				return *n
			}), "out", out)
		}}
		log, rows, err := p.run(t, tasks.Options{OnError: tasks.OnErrorDeadLetter})
		require.NoError(t, err)
		require.Len(t, rows, poisonItems-poisonItems/100)
		letters := 0
		require.NoError(t, tasks.ReadDeadLetters(t.Context(), log, "poisoned", func(_ tasks.DeadLetterID, l *tasks.DeadLetter) error {
			letters++
			require.Contains(t, l.Error, text)
			return nil
		}))
		require.Equal(t, poisonItems/100, letters)
	}
}

// A job with poison is killed at every group that it appends, and resumes: all other rows are there
// once, and so is each letter.
func TestPoisonKilled(t *testing.T) {
	lives := 3
	if os.Getenv("TAILRACE_SOAK") != "" {
		lives = 1000
	}
	for _, p := range poisons {
		if p.raw || p.name != "half done" && p.name != "state" && p.name != "in order" && p.name != "source" {
			continue
		}
		for _, protocol := range []string{"fused", "marker", "txn"} {
			t.Run(p.name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				o := tasks.Options{
					Protocol: protocol, OnError: tasks.OnErrorDeadLetter, CommitInterval: time.Millisecond, Logger: quiet,
					Parallelism: 1, Groups: 4,
				}
				groups := 0
				for at, step := 1, 1; at <= groups+1; at += step {
					plan, out := p.plan(t)
					log := mem.New(mem.Options{})
					o.Checkpoints = storetest.NewMem()
					d := newDying(log, at)
					skipped := -1
					again := func() error {
						j, err := tasks.Start(t.Context(), log, plan, o)
						if err != nil {
							return err
						}
						err = j.Wait()
						skipped = 0
						for _, s := range j.Status() {
							skipped += int(s.Skipped)
						}
						return err
					}
					err := live(t, d, again, func(ctx context.Context) error { return tasks.Run(ctx, d, plan, o) })
					require.NoError(t, err, "killed at group %d", at)
					require.Contains(t, []int{-1, poisonItems / 100}, skipped, "all that both instances have skipped, if there were two")
					want := map[int64]int{}
					poison := map[string]int{}
					for i := range int64(poisonItems) {
						if bad(i) {
							poison[fmt.Sprint(i)] = 1
						} else {
							want[i] = 1
						}
					}
					require.Equal(t, want, count(out.Rows), "killed at group %d", at)
					letters := map[string]int{}
					require.NoError(t, tasks.ReadDeadLetters(t.Context(), log, "poisoned", func(_ tasks.DeadLetterID, l *tasks.DeadLetter) error {
						letters[itself(l)]++
						return nil
					}))
					require.Equal(t, poison, letters, "killed at group %d", at)
					if groups == 0 {
						groups = int(log.Stats().Groups)
						step = max(groups/lives, 1)
					}
				}
			})
		}
	}
}
