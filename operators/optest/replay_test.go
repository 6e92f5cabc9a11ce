package optest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

type (
	callbacks = operators.Handler[int64]
	services  = operators.Context[int64, string]
)

// replayed runs a job whose items, of five keys, a function processes.
func replayed(t *testing.T, f func(c *services) callbacks, o optest.Options) (optest.Report, error) {
	var items []optest.Timed[int64]
	for i := range int64(200) {
		items = append(items, optest.At(i, i))
	}
	job := operators.NewJob("replayed")
	keyed := operators.KeyBy(operators.FromSource(job, "items", optest.Items(0, items), serde.Int64), "keyed", serde.Int64, func(v *int64) int64 { return *v % 5 })
	rows := operators.Process(keyed, "f", f).With(serde.String)
	operators.ToSink(rows, "rows", optest.Collect[operators.KV[int64, string]](nil))
	plan, err := job.Plan()
	require.NoError(t, err)
	return optest.Run(plan, o)
}

// A function that depends on its state and on its Runtime only makes the same again, with each kind
// of tables, wherever commits and crashes fall.
func TestReplay(t *testing.T) {
	for seed := range uint64(20) {
		o := optest.Options{Seed: seed, Parallelism: 2, Start: 1_000, Budget: int(seed%3) * 50, CrashEvery: int(seed%4) * 50}
		report, err := replayed(t, func(c *services) callbacks {
			n := operators.NewValue(c, "n", serde.Int64)
			all := operators.NewList(c, "all", serde.Int64)
			return callbacks{
				Item: func(v *int64) {
					*n.Upsert()++
					all.Add(c.Time(), v)
					c.Emit(fmt.Sprint(c.Now(), c.Random(), *n.Get(), len(all.All())), c.Time())
					c.SetEventTimer(c.Time() + 7)
					c.SetWallTimer(c.Now() + *v%13)
				},
				Timers: operators.Timers{
					OnEvent: func(t int64) {
						all.DropBefore(t - 20)
						c.Emit(fmt.Sprint("event ", t, c.Random()), t)
					},
					OnWall: func(t int64) { c.Emit(fmt.Sprint("wall ", t, *n.Get()), c.Watermark()) },
				},
			}
		}, o)
		require.NoError(t, err, "seed %d", seed)
		require.Positive(t, report.Replayed)
	}
}

// What a function does by something else is found out: by its outputs, its state, or what it counts.
func TestReplayFindsHiddenInputs(t *testing.T) {
	for name, f := range map[string]func(c *services) callbacks{
		"a variable": func(c *services) callbacks {
			n := 0
			return callbacks{Item: func(*int64) { n++; c.Emit(fmt.Sprint(n), c.Time()) }}
		},
		"a variable, in the state": func(c *services) callbacks {
			n, kept := int64(0), operators.NewValue(c, "kept", serde.Int64)
			return callbacks{Item: func(*int64) { n++; kept.Put(&n) }}
		},
		"a variable, in the counters": func(c *services) callbacks {
			n := int64(0)
			return callbacks{Item: func(*int64) { n++; c.Count("n", n) }}
		},
		"a variable, in what is late": func(c *services) callbacks {
			n := 0
			return callbacks{Item: func(*int64) {
				if n++; n > 20 {
					c.Late()
				}
			}}
		},
		"the order of a map": func(c *services) callbacks {
			set := map[int]bool{}
			for i := range 30 {
				set[i] = true
			}
			return callbacks{Item: func(*int64) {
				for i := range set {
					c.Emit(fmt.Sprint(i), c.Time())
				}
			}}
		},
		"the clock": func(c *services) callbacks {
			return callbacks{Item: func(*int64) { c.Emit(fmt.Sprint(time.Now().UnixNano()), c.Time()) }}
		},
		"random numbers": func(c *services) callbacks {
			return callbacks{Item: func(*int64) { c.Emit(fmt.Sprint(rand.Uint64()), c.Time()) }}
		},
		"how often it asks for random numbers": func(c *services) callbacks {
			asked := false
			return callbacks{Item: func(*int64) {
				if !asked {
					asked = true
					c.Random()
				}
			}}
		},
		"timers by a variable": func(c *services) callbacks {
			n := int64(0)
			return callbacks{
				Item:   func(*int64) { n++; c.SetEventTimer(c.Time() + n%3) },
				Timers: operators.Timers{OnEvent: func(int64) {}},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			for seed := uint64(0); err == nil && seed < 10; seed++ { // from another commit each
				_, err = replayed(t, f, optest.Options{Seed: seed})
			}
			require.ErrorContains(t, err, `optest: stage "keyed", task 0, restored as of its commit`)
			require.ErrorContains(t, err, "depends on something besides its input, its state and its Runtime")
		})
	}
}
