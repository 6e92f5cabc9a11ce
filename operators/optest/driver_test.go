package optest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/logtag"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// visits counts the visits of each user per minute, and greets a user at the first visit and when a
// second of the wall clock has passed since.
func visits(t testing.TB, user func(v *string) string) *exec.Plan {
	job := operators.NewJob("visits")
	src, err := logtag.Records("visits", func([]byte) (string, int64, error) { return "", 0, nil })
	require.NoError(t, err)
	byUser := operators.KeyBy(operators.FromSource(job, "visits", src, serde.String), "by-user", serde.String, user)
	counts := operators.CountWindows(byUser, operators.Tumbling(time.Minute))
	operators.ToSink(counts, "counts", operators.FuncSink(func(*operators.Batch[operators.KV[string, operators.Windowed[int64]]]) error { return nil }))
	greetings := operators.Process(byUser, "greet", func(c *operators.Context[string, string]) operators.Handler[string] {
		seen := operators.NewValue(c, "seen", serde.Int64)
		return operators.Handler[string]{
			Item: func(*string) {
				if *seen.Upsert()++; *seen.Get() == 1 {
					c.Emit("hello", c.Time())
					c.SetWallTimer(c.Now() + 1000)
				}
			},
			Timers: operators.Timers{OnWall: func(int64) { c.Emit("still there?", c.Watermark()) }},
		}
	}).With(serde.String)
	operators.ToSink(greetings, "greetings", operators.FuncSink(func(*operators.Batch[operators.KV[string, string]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

type (
	count    = operators.KV[string, operators.Windowed[int64]]
	greeting = operators.KV[string, string]
)

func counted(user string, minute, n int64) count {
	return count{Key: user, Value: operators.Windowed[int64]{Start: minute * 60_000, End: (minute + 1) * 60_000, Value: n}}
}

// Each call is seen in what can be read behind it, with any number of tasks, and in spite of
// crashes, of all tasks at any time or of one stage before its commit.
func TestDriver(t *testing.T) {
	for _, parallelism := range []int{1, 3} {
		for _, crash := range []string{"", "all", "visits", "by-user", "counts", "greetings"} {
			t.Run(fmt.Sprint(parallelism, crash), func(t *testing.T) {
				d := optest.NewDriver(t, visits(t, func(v *string) string { return *v }), optest.Options{Parallelism: parallelism, Start: 5_000})
				in := optest.NewInput[string](d, "visits")
				counts := optest.NewOutput[count](d, "counts")
				greetings := optest.NewOutput[greeting](d, "greetings")
				crashes := 0
				fail := func() {
					switch crash {
					case "":
						return
					case "all":
						d.Crash()
					default:
						d.CrashBeforeCommit(crash)
					}
					crashes++
				}
				fail()
				in.Pipe(1_000, "ann", "bob", "ann")
				require.Empty(t, counts.Read())
				require.ElementsMatch(t, []greeting{{Key: "ann", Value: "hello"}, {Key: "bob", Value: "hello"}}, greetings.Read())
				require.Empty(t, greetings.Read())
				require.Equal(t, map[string]int64{"ann": 2, "bob": 1}, optest.State(d, "by-user", "greet.seen", serde.String, serde.Int64))
				require.Equal(t, 2, d.Tables("by-user")["greet.seen"])

				fail()
				d.AdvanceTo(59_999)
				require.Empty(t, counts.Read())
				fail()
				d.AdvanceTo(60_000)
				require.ElementsMatch(t, []count{counted("ann", 0, 2), counted("bob", 0, 1)}, counts.Read())
				in.Pipe(59_000, "ann")
				require.Equal(t, 1, d.Late())

				d.AdvanceWall(999 * time.Millisecond)
				require.Empty(t, greetings.Read())
				fail()
				d.AdvanceWall(time.Millisecond)
				require.ElementsMatch(t, []greeting{{Key: "ann", Value: "still there?"}, {Key: "bob", Value: "still there?"}}, greetings.Read())

				in.Pipe(61_000, "bob")
				fail()
				d.End()
				require.Equal(t, []count{counted("bob", 1, 1)}, counts.Read())
				require.Empty(t, greetings.Read())
				require.GreaterOrEqual(t, d.Crashes(), crashes)
			})
		}
	}
}

// What a function keeps beside its state is found out by a crash.
func TestDriverFindsHiddenState(t *testing.T) {
	run := func(crash bool) []string {
		job := operators.NewJob("hidden")
		words := operators.FromSource(job, "words", optest.Items[string](0, nil), serde.String)
		byOne := operators.KeyBy(words, "by-one", serde.Int64, func(*string) int64 { return 1 })
		joined := operators.Process(byOne, "join", func(c *operators.Context[int64, string]) operators.Handler[string] {
			var all []string // not in a state
			return operators.Handler[string]{Item: func(v *string) {
				all = append(all, strings.Clone(*v))
				c.Emit(strings.Join(all, "+"), c.Time())
			}}
		}).With(serde.String)
		rows := optest.Collect[operators.KV[int64, string]](nil)
		operators.ToSink(joined, "rows", rows)
		plan, err := job.Plan()
		require.NoError(t, err)
		d := optest.NewDriver(t, plan, optest.Options{})
		in := optest.NewInput[string](d, "words")
		in.Pipe(1, "a")
		if crash {
			d.Crash()
		}
		in.Pipe(2, "b")
		var got []string
		for _, r := range rows.Rows {
			got = append(got, r.Value)
		}
		return got
	}
	require.Equal(t, []string{"a", "a+b"}, run(false))
	require.Equal(t, []string{"a", "b"}, run(true))
}

// failing is a test that fails.
type failing struct {
	*testing.T
	why string
}

type failed struct{}

func (f *failing) Helper() {}
func (f *failing) Fatal(args ...any) {
	f.why = fmt.Sprint(args...)
	panic(failed{})
}

// What is wrong with the use of a driver, or with the job, ends the test and says why.
func TestDriverFails(t *testing.T) {
	for want, use := range map[string]func(d *optest.Driver){
		`the plan has no stage "vists"; it has ["visits" "by-user" "counts" "greetings"]`: func(d *optest.Driver) { optest.NewInput[string](d, "vists") },
		`the plan's stage "counts" is no source`:                                          func(d *optest.Driver) { optest.NewInput[string](d, "counts") },
		`the plan's stage "by-user" is no sink`:                                           func(d *optest.Driver) { optest.NewOutput[string](d, "by-user") },
		`source "visits" has been made before`: func(d *optest.Driver) {
			optest.NewInput[string](d, "visits")
			optest.NewInput[string](d, "visits")
		},
		`source "visits" has items of type string, and its substitute is a *optest.Input[int64]`: func(d *optest.Driver) { optest.NewInput[int64](d, "visits").Pipe(1, 1) },
		`sink "greetings" takes items of type operators.KV[string,string]`: func(d *optest.Driver) {
			optest.NewInput[string](d, "visits")
			optest.NewOutput[string](d, "greetings").Read()
		},
		"make inputs and outputs before the first step": func(d *optest.Driver) {
			optest.NewInput[string](d, "visits").Pipe(1, "a")
			optest.NewOutput[count](d, "counts")
		},
		"partition 1 of a source that has 1": func(d *optest.Driver) { optest.NewInput[string](d, "visits").PipeTo(1, 1, "a") },
		"an item for a source that has ended": func(d *optest.Driver) {
			in := optest.NewInput[string](d, "visits")
			d.End()
			in.Pipe(1, "a")
		},
		`has no table "seen"; it has [`: func(d *optest.Driver) {
			optest.NewInput[string](d, "visits")
			optest.State(d, "by-user", "seen", serde.String, serde.Int64)
		},
		`the serde of its value does not fit`: func(d *optest.Driver) {
			optest.NewInput[string](d, "visits").Pipe(1, "ann")
			optest.State(d, "by-user", "greet.seen", serde.String, serde.String)
		},
		"nobody is called x": func(d *optest.Driver) { optest.NewInput[string](d, "visits").Pipe(1, "x") },
		`tag "visits": a source needs the log that the job runs on`: func(d *optest.Driver) { d.AdvanceTo(1) },
	} {
		f := &failing{T: t}
		require.PanicsWithValue(t, failed{}, func() {
			use(optest.NewDriver(f, visits(t, func(v *string) string {
				if *v == "x" {
					operators.Fail(fmt.Errorf("nobody is called %s", *v))
				}
				return *v
			}), optest.Options{}))
		}, want)
		require.Contains(t, f.why, want)
	}
}

// A word count, step by step.
func ExampleDriver() {
	job := operators.NewJob("wordcount")
	lines := operators.FromSource(job, "lines", optest.Items[string](0, nil), serde.String)
	words := operators.FlatMap(lines, func(line *string, emit func(string)) {
		for word := range strings.FieldsSeq(*line) {
			emit(word)
		}
	}).With(serde.String)
	byWord := operators.KeyBy(words, "by-word", serde.String, func(word *string) string { return *word })
	operators.ToSink(operators.Count(byWord), "counts", operators.FuncSink(func(*operators.Batch[operators.Change[string, int64]]) error { return nil }))
	plan, err := job.Plan()
	if err != nil {
		panic(err)
	}

	d := optest.NewDriver(nil, plan, optest.Options{})
	in := optest.NewInput[string](d, "lines")
	counts := optest.NewOutput[operators.Change[string, int64]](d, "counts")
	show := func() {
		for _, c := range counts.Read() {
			fmt.Println(c.Key, c.Value)
		}
	}
	in.Pipe(1, "to be")
	show()
	d.Crash()
	in.Pipe(2, "or not to be")
	show()
	// Output:
	// to 1
	// be 1
	// or 1
	// not 1
	// to 2
	// be 2
}
