package watermark_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/watermark/chooser"
)

type benchRuntime struct {
	outs     []*exec.Output
	promised []int64 // by producer
}

func (r *benchRuntime) Home(int) exec.Home        { return nil }
func (r *benchRuntime) Task() (int, int)          { return 0, 1 }
func (r *benchRuntime) Groups() int               { return 64 }
func (r *benchRuntime) OutputGroups(int) int      { return 64 }
func (r *benchRuntime) Promises(int) []int64      { return r.promised }
func (r *benchRuntime) Output(i int) *exec.Output { return r.outs[i] }
func (r *benchRuntime) Now() int64                { return 0 }
func (r *benchRuntime) Random() uint64            { return 0 }
func (r *benchRuntime) Fence() operators.Fence    { return operators.Fence{} }
func (r *benchRuntime) Arrived(int64)             {}
func (r *benchRuntime) Late(int)                  {}
func (r *benchRuntime) Count(string, int64)       {}

// perCommit is how many items of each key a commit has.
const perCommit = 14

// keyedStage is the stage behind a KeyBy: sums in windows of 1 s. The items of a key are 7 ms apart, and
// the watermark is behind by a delay.
type keyedStage struct {
	c       exec.Chain
	rt      *benchRuntime
	changes *exec.Output
	rest    []byte // a section behind its first time
	section []byte
	in      exec.In
	keys    int
	delay   int64
	now     int64
}

func newKeyedStage(t require.TestingT, keys int, delay int64, per operators.RouteOption) *keyedStage {
	job := operators.NewJob("bench")
	src := operators.FromSource(job, "src", optest.Items[int64](0, nil), serde.Int64)
	in := operators.KeyBy(src, "in", serde.Int64, func(v *int64) int64 { return *v }, per)
	sums := operators.AggregateWindows(in, operators.Tumbling(time.Second), operators.Aggregator[int64, int64]{
		Add: func(acc *int64, v *int64, _ int64) { *acc += *v },
	})
	operators.ToSink(sums, "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, operators.Windowed[int64]]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	s := &keyedStage{rt: &benchRuntime{outs: []*exec.Output{exec.NewOutput(64)}}, changes: exec.NewOutput(64), keys: keys, delay: delay, in: exec.In{Group: 7, Items: keys}}
	s.c, err = plan.Stages[1].New(s.rt)
	require.NoError(t, err)
	for i := range int64(keys) {
		if i > 0 {
			s.rest = serde.AppendInt64(s.rest, 0) // the time of the item before
		}
		s.rest = serde.AppendInt64(s.rest, i)
		s.rest = serde.AppendInt64(s.rest, i)
	}
	return s
}

// one processes what a commit has, and commits.
func (s *keyedStage) one(t require.TestingT) {
	for range perCommit {
		s.section = append(serde.AppendInt64(s.section[:0], s.now), s.rest...)
		if _, err := s.c.Process(&s.in, s.section, exec.Budget{}); err != nil {
			require.NoError(t, err)
		}
		s.now += 7
	}
	if _, err := s.c.Advance(exec.Bounds{Time: s.now - s.delay}, exec.Budget{}); err != nil {
		require.NoError(t, err)
	}
	s.rt.promised = append(s.rt.promised[:0], s.now-s.delay)
	if err := s.c.Flush(); err != nil {
		require.NoError(t, err)
	}
	for i, table := range s.c.Tables() {
		table.Changes(i, s.changes)
	}
	s.changes.Reset()
	s.rt.outs[0].Reset()
}

// BenchmarkWindows: sums of 3000 and of 100 000 keys, with the task's clock and with a clock for each key.
// The watermark is 800 ms behind.
func BenchmarkWindows(b *testing.B) {
	for _, keys := range []int{3000, 100_000} {
		for name, per := range map[string]operators.RouteOption{
			"task": operators.WatermarkPer(operators.Task, 0), "key": operators.WatermarkPer(operators.Key, 0),
			"auto": operators.WatermarkPer(operators.Auto, 0),
		} {
			b.Run(name+"/"+map[int]string{3000: "3k", 100_000: "100k"}[keys], func(b *testing.B) {
				s := newKeyedStage(b, keys, 800, per)
				for range 30 {
					s.one(b)
				}
				b.ReportAllocs()
				b.ResetTimer()
				n := 0
				for b.Loop() {
					s.one(b)
					n += perCommit * keys
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/item")
			})
		}
	}
}

// An item allocates nothing, with a clock for each key or without, as windows open and close.
func TestWindowsDoNotAllocate(t *testing.T) {
	for name, per := range map[string]operators.RouteOption{
		"task": operators.WatermarkPer(operators.Task, 0), "key": operators.WatermarkPer(operators.Key, 0),
		"auto": operators.WatermarkPer(operators.Auto, 0),
	} {
		s := newKeyedStage(t, 300, 800, per)
		for range 200 {
			s.one(t)
		}
		runs := testing.AllocsPerRun(200, func() { s.one(t) })
		require.Less(t, runs, 0.001*perCommit*300, "%s: an allocation in a thousand items", name)
	}
}

// A stage whose grain is chosen measures its items where they come to it: those of the task, and those of one of 64 keys.
func TestMeasured(t *testing.T) {
	_, ok := newKeyedStage(t, 10, 800, operators.WatermarkPer(operators.Auto, 0)).c.(chooser.Measurer)
	require.True(t, ok)
	s := newKeyedStage(t, 20_000, 800, operators.WatermarkPer(operators.Auto, 0))
	var m chooser.Measured
	for range 3 {
		s.one(t)
	}
	s.now -= 1000 // all of a sudden: 14 records before event time moves
	s.one(t)
	s.c.(chooser.Measurer).Measured(&m)
	require.EqualValues(t, 4*perCommit*20_000, m.Task.Items())
	require.EqualValues(t, 1024, m.Task.Exceeded(10), "the last quarter is behind")
	require.EqualValues(t, 1024, m.Key.Exceeded(10))
	require.InDelta(t, 4*perCommit*20_000/64, float64(m.Key.Items()), 0.2*4*perCommit*20_000/64)
	require.Equal(t, 20_000, m.Keys)

	s = newKeyedStage(t, 300, 800, operators.WatermarkPer(operators.Auto, 0))
	at := s.now
	s.one(t)
	s.now, at = at+5, s.now+500
	for _, now := range []int64{at, at - 200} { // one record
		s.section = append(serde.AppendInt64(s.section[:0], now), s.rest...)
		_, err := s.c.Process(&s.in, s.section, exec.Budget{})
		require.NoError(t, err)
	}
	s.c.(chooser.Measurer).Measured(&m)
	require.Zero(t, m.Task.Exceeded(1<<30), "those of a record are not compared")
	require.NoError(t, s.c.Flush())
	require.NoError(t, s.c.Flush())
	_, err := s.c.Process(&s.in, s.section, exec.Budget{})
	require.NoError(t, err)
	s.c.(chooser.Measurer).Measured(&m)
	require.EqualValues(t, 256, m.Task.Exceeded(1<<30), "event time stands")

	s = newKeyedStage(t, 300, 800, operators.WatermarkPer(operators.Key, 0))
	s.one(t)
	s.c.(chooser.Measurer).Measured(&m)
	require.Zero(t, m.Task.Items(), "a grain that is not chosen costs nothing")
	require.Zero(t, testing.AllocsPerRun(10, func() { s.c.(chooser.Measurer).Measured(&m) }))
}

// A stage whose grain is chosen measures how far each promise of a producer is behind what the producer has sent, however many
// items have come since then, and how far the items of a key are apart.
func TestHeldIsMeasured(t *testing.T) {
	s := newKeyedStage(t, 20_000, 900, operators.WatermarkPer(operators.Auto, 0))
	for range 5 {
		s.one(t)
	}
	var m chooser.Measured
	s.c.(chooser.Measurer).Measured(&m)
	require.EqualValues(t, 4, m.Held.Items(), "no item has come behind the fifth promise")
	require.EqualValues(t, 1024, m.Held.Exceeded(1<<30))
	require.EqualValues(t, 8, m.Gap.Exceeded(2), "7 ms")
	require.InDelta(t, 5*perCommit*20_000/64, float64(m.Gap.Items()), 0.2*5*perCommit*20_000/64)
	s.in.Task, s.rt.promised = 1, []int64{s.now, s.now + 1000}
	s.one(t)
	s.c.(chooser.Measurer).Measured(&m)
	require.EqualValues(t, 4, m.Held.Items(), "another producer, whose items have not come")
	s.in.Task, s.rt.promised = 0, []int64{s.now - 3, s.now}
	s.one(t)
	s.c.(chooser.Measurer).Measured(&m)
	require.EqualValues(t, 5, m.Held.Items())
	require.EqualValues(t, 1, m.Held[0], "its newest item is older than the promise")
}
