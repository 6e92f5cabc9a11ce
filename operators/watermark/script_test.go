package watermark_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// scene is a job of one operator on a keyed stream, driven step by step.
type scene struct {
	*script.Script
	d     *optest.Driver
	in    *optest.Input[hit]
	other *optest.Input[hit] // the right side of a join
	out   *optest.Output[string]
	late  *optest.Output[string]
	stage string
}

// TestScripts: what fires behind which item, by a clock for each key or by the task's. The commands:
//
//	job OPERATOR [grain=task|key|auto|N] [delay=MS] [size=MS] [slide=MS] [lateness=MS] [filter=KEY] [partitions=N] [producers=N]
//	                                producers: a source task for each of N partitions, and ByProducer
//	item KEY TIME N [PARTITION]     right KEY TIME N
//	advance TIME [PARTITION]        end
//	switch task|key [DELAY]         of the grain auto
//	crash                           all tasks restart from their last commits
//	state                           the number of keys of each table that has any
func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) {
		return (&scene{Script: s}).do
	})
}

func (s *scene) do(f []string) {
	switch f[0] {
	case "job":
		s.job(f[1], f[2:])
		return
	case "item":
		partition := 0
		if len(f) > 4 {
			partition = s.Int(f[4])
		}
		s.in.PipeTo(partition, int64(s.Int(f[2])), hit{f[1], int64(s.Int(f[3]))})
	case "right":
		s.other.Pipe(int64(s.Int(f[2])), hit{f[1], int64(s.Int(f[3]))})
	case "advance":
		if len(f) > 2 {
			s.in.AdvanceTo(s.Int(f[2]), int64(s.Int(f[1])))
			break
		}
		s.d.AdvanceTo(int64(s.Int(f[1])))
	case "switch":
		g := exec.Grain{Kind: f[1]}
		if len(f) > 2 {
			g.Delay = int64(s.Int(f[2]))
		}
		s.d.Switch(s.stage, g)
	case "end":
		s.d.End()
	case "crash":
		s.d.Crash()
	case "state":
		tables := s.d.Tables(s.stage)
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			if n := tables[name]; n > 0 {
				s.Printf("%s: %d", name, n)
			}
		}
		return
	default:
		s.Unknown()
	}
	for _, row := range s.out.Read() {
		s.Printf("%s", row)
	}
	if s.late != nil {
		for _, row := range s.late.Read() {
			s.Printf("late: %s", row)
		}
	}
}

func (s *scene) job(kind string, words []string) {
	o := map[string]string{"grain": "key", "delay": "0", "size": "10", "slide": "10", "lateness": "0", "partitions": "1", "producers": "0"}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		o[name] = value
	}
	ms := func(name string) int64 {
		n, err := strconv.ParseInt(o[name], 10, 64)
		require.NoError(s, err)
		return n
	}
	per, by, groups := operators.WatermarkPer(operators.Task, 0), operators.Groups(0), 0
	switch o["grain"] {
	case "key":
		per = operators.WatermarkPer(operators.Key, milliseconds(ms("delay")))
	case "auto":
		per = operators.WatermarkPer(operators.Auto, milliseconds(ms("delay")))
	case "task":
	default:
		groups = 1
		per = operators.WatermarkPer(operators.Keys(int(ms("grain"))), milliseconds(ms("delay")))
	}
	partitions, tasks := ms("partitions"), 1
	if n := ms("producers"); n > 0 {
		partitions, tasks, by = n, int(n), operators.ByProducer()
	}
	job := operators.NewJob("scene")
	s.stage = "in"
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(0, make([][]optest.Timed[hit], partitions)...), hitSerde), "in", serde.String, byKey, per, by)
	if o["filter"] != "" {
		in = operators.FilterValues(in, func(_ *string, h *hit) bool { return h.Key != o["filter"] || h.N > 0 })
	}
	lateness := operators.Lateness(milliseconds(ms("lateness")))
	var sums operators.KeyedStream[string, operators.Windowed[int64]]
	var rows operators.Flow[string]
	switch kind {
	case "windows":
		sums = operators.AggregateWindows(in, operators.Sliding(milliseconds(ms("size")), milliseconds(ms("slide"))), summing(), lateness)
	case "sessions":
		sums = operators.AggregateSessions(in, "sessions", milliseconds(ms("size")), summing(), lateness)
	case "join":
		right := operators.KeyBy(operators.FromSource(job, "right", optest.Items[hit](0, nil), hitSerde), "right-in", serde.String, byKey, per, by)
		rows = timed(operators.LeftJoinStreams(in, right, "join", milliseconds(ms("size")), func(_ *string, l, r *hit) string {
			if r == nil {
				return showHit(l) + " alone"
			}
			return showHit(l) + " with " + showHit(r)
		}))
	case "sides":
		right := operators.KeyBy(operators.FromSource(job, "right", optest.Items[hit](0, nil), hitSerde), "right-in", serde.String, byKey, per, by)
		rows = timed(operators.Process2(in, right, "sides", func(c *operators.Context[string, string]) operators.Handler2[hit, hit] {
			show := func(h *hit) {
				c.Emit(fmt.Sprintf("%s at %d, watermark %s", showHit(h), c.Time(), timeOf(c.Watermark())), c.Time())
			}
			return operators.Handler2[hit, hit]{Left: show, Right: show}
		}))
	case "timers": // an item of N sets a timer at N, or deletes the one at −N
		rows = timed(operators.Process(in, "timers", func(c *operators.Context[string, string]) operators.Handler[hit] {
			return operators.Handler[hit]{
				Item: func(h *hit) {
					c.Emit(fmt.Sprintf("item at %d, watermark %s", c.Time(), timeOf(c.Watermark())), c.Time())
					if h.N < 0 {
						c.DeleteEventTimer(-h.N)
						return
					}
					c.SetEventTimer(h.N)
				},
				Timers: operators.Timers{OnEvent: func(t int64) {
					c.Emit(fmt.Sprintf("%s: timer %d, watermark %s", c.Key(), t, timeOf(c.Watermark())), t)
				}},
			}
		}))
	default:
		s.Unknown()
	}
	if rows == nil {
		rows = timed(operators.Process(sums, "rows", func(c *operators.Context[string, string]) operators.Handler[operators.Windowed[int64]] {
			return operators.Handler[operators.Windowed[int64]]{Item: func(w *operators.Windowed[int64]) {
				c.Emit(fmt.Sprintf("%s [%d,%d) %d at %d", c.Key(), w.Start, w.End, w.Value, c.Time()), c.Time())
			}}
		}))
		operators.ToSink(operators.Map(operators.Late[hit](sums), lateRow), "late", optest.Collect(clone))
	}
	operators.ToSink(rows, "out", optest.Collect(clone))
	plan, err := job.Plan()
	require.NoError(s, err)
	s.d = optest.NewDriver(driven{s}, plan, optest.Options{Groups: groups, Parallelism: tasks})
	s.in = optest.NewInput[hit](s.d, "src")
	if kind == "join" || kind == "sides" {
		s.other = optest.NewInput[hit](s.d, "right")
	}
	s.out = optest.NewOutput[string](s.d, "out")
	if kind == "windows" || kind == "sessions" {
		s.late = optest.NewOutput[string](s.d, "late")
	}
}

// driven is the scene as the test of a driver.
type driven struct{ *scene }

func (d driven) Helper()           {}
func (d driven) Cleanup(func())    {}
func (d driven) Fatal(args ...any) { require.Fail(d.scene, fmt.Sprint(args...)); d.FailNow() }

func timed(ks operators.KeyedStream[string, string]) operators.Flow[string] {
	return operators.Map(ks, func(kv *operators.KV[string, string]) string { return kv.Value })
}

// timeOf formats an event time.
func timeOf(t int64) string {
	if t < -1<<60 {
		return "none"
	}
	return strconv.FormatInt(t, 10)
}
