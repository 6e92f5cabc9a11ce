package tasks_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/tags"
)

// autos counts each key per 100 ms, by a clock that may become the key's own, into a file.
func autos(t *testing.T, file string, src operators.Source[int64], filters ...func(key, v *int64) bool) *operators.Plan {
	job := operators.NewJob("autos")
	in := operators.FromSource(job, "keys", src, serde.Int64)
	byKey := operators.KeyBy(in, "by-key", serde.Int64, func(k *int64) int64 { return *k }, operators.WatermarkPer(operators.Auto, 0))
	for _, f := range filters {
		byKey = operators.FilterValues(byKey, f)
	}
	counts := operators.CountWindows(byKey, operators.Tumbling(100*time.Millisecond))
	operators.ToSink(counts, "out", operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
		return fmt.Appendf(dst, "%d %d %d\n", c.Value.Start, c.Key, c.Value.Value)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

// logged computes the rows of autos from nothing but the log: the items of the stream by-key where they count, and
// the plans. late is how many items the clocks of their keys have passed.
func logged(t *testing.T, log sharedlog.Log, l *layout.Layout) (rows []string, late int) {
	stream := slices.IndexFunc(l.Plan.Streams, func(s exec.StreamSpec) bool { return s.Name == "by-key" })
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	r, err := log.NewReader(sharedlog.ReaderOptions{
		Tags: append([]sharedlog.Tag{tags.Control(l.Job), l.Streams[stream].All}, l.Streams[stream].Data...), From: sharedlog.First, Until: tail,
	})
	require.NoError(t, err)
	defer r.Close()
	type held struct {
		h    envelope.Header
		data []byte
	}
	var (
		grain envelope.Grain
		own   = map[int64]int64{}
		count = map[[2]int64]int{}
		waits []held // for their markers
	)
	counts := func(data []byte) {
		var s envelope.Sections
		_, err := s.Open(data)
		require.NoError(t, err)
		for {
			x, ok := s.Next()
			if !ok {
				require.NoError(t, s.Err())
				return
			}
			at, in := int64(0), x.Data
			next := func() int64 {
				v, n := binary.Varint(in)
				require.Positive(t, n)
				in = in[n:]
				return v
			}
			for range x.Items {
				at += next()
				key, value := next(), next()
				require.Equal(t, key, value)
				window := (at + 1000) / 100
				have, moved := own[key]
				if moved && (window-10)*100+100 <= have {
					late++
				} else {
					count[[2]int64{window, key}]++
				}
				if to := at - grain.Delay; grain.PerKey && (!moved || to > have) {
					own[key] = to
				}
			}
			require.Empty(t, in)
		}
	}
	for {
		b, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		for i := range b.Entries {
			data := b.Entries[i].Data
			kind, err := envelope.KindOf(data)
			require.NoError(t, err)
			switch kind {
			case envelope.KindPlan:
				var p envelope.Plan
				require.NoError(t, p.Parse(data))
				if g := p.Stages[1].Grain; g != nil {
					grain = *g
				}
			case envelope.Data:
				var s envelope.Sections
				h, err := s.Open(data)
				require.NoError(t, err)
				waits = append(waits, held{h, slices.Clone(data)})
			case envelope.KindMarker:
				var m envelope.Marker
				require.NoError(t, m.Parse(data))
				waits = slices.DeleteFunc(waits, func(w held) bool {
					if w.h.Task != m.Task {
						return false
					}
					if w.h.Instance == m.Instance {
						counts(w.data)
					}
					return true // else its instance had not committed it
				})
			}
		}
	}
	for k, n := range count {
		rows = append(rows, fmt.Sprintf("%d %d %d", (k[0]-10)*100, k[1], n))
	}
	slices.Sort(rows)
	return rows, late
}

// TestSwitchedOverCrashes: the grain changes while key groups move, and tasks and the process die. With delays that
// allow for the disorder of keys the rows are those of a job that nothing has disturbed, though the log is trimmed. With
// others, what is late follows from the log alone, in the order in which it counts.
func TestSwitchedOverCrashes(t *testing.T) {
	var late, switches atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(16) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 11))
				short := seed%4 < 2 // delays
				parts := 1
				if short {
					parts = 2
				}
				w := newWorld(seed, 40_000, parts)
				file := filepath.Join(t.TempDir(), "out")
				log := mem.New(mem.Options{})
				o := tasks.Options{
					Parallelism: 1 + rng.IntN(3), Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: []string{"fused", "marker"}[seed%2],
					Standbys: rng.IntN(2), GrainInterval: -1,
				}
				if !short {
					o.TrimBytes, o.TrimInterval = 1, time.Millisecond
				}
				if rng.IntN(3) > 0 {
					o.Checkpoints, o.SnapshotInterval = storetest.NewMem(), time.Millisecond
				}
				var l *layout.Layout
				overCrashes(t, rng, 8000, func() *tasks.Job {
					job, err := tasks.Start(t.Context(), log, autos(t, file, optest.Items(delay, w.parts...)), o)
					require.NoError(t, err)
					l = job.Layout()
					return job
				}, func(job *tasks.Job, life int) {
					goals := rand.New(rand.NewPCG(seed, uint64(life)))
					for {
						r := tasks.Rescale{Stage: "by-key", Tasks: 1 + goals.IntN(8), Batch: goals.IntN(3), Mode: aMode(goals)}
						if _, err := job.Rescale(t.Context(), r); err != nil {
							return
						}
					}
				}, func(job *tasks.Job, life int) {
					grains := rand.New(rand.NewPCG(seed, uint64(100+life)))
					for {
						g := tasks.Grain{PerKey: grains.IntN(3) > 0, Delay: delay + grains.Int64N(2)*500}
						if short {
							g.Delay = grains.Int64N(2) * delay / 2
						}
						if err := job.SwitchGrain(t.Context(), tasks.SwitchGrain{Stage: "by-key", Grain: g}); err != nil {
							require.ErrorIs(t, err, tasks.ErrEnded)
							return
						}
						switches.Add(1)
					}
				})
				want := w.want
				if short {
					var n int
					want, n = logged(t, log, l)
					late.Add(int64(n))
				}
				sameRows(t, want, lines(t, file))
			})
		}
	})
	require.Positive(t, late.Load(), "the test cannot fail")
	require.Greater(t, switches.Load(), int64(32), "the test cannot fail")
}

// A task that begins, as a newcomer of its stage or in the place of one that has died, has the grain of the newest plan
// below its position, and no newer one.
func TestGrainOfTasksThatBegin(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		for _, begins := range []string{"newcomer", "restored", "started again", "receiver", "restored behind a rescale"} {
			t.Run(protocol+"/"+begins, func(t *testing.T) {
				t.Parallel()
				w := newWorld(5, 20_000, 1)
				file := filepath.Join(t.TempDir(), "out")
				log := mem.New(mem.Options{})
				g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
				o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: protocol, GrainInterval: -1}
				job, err := tasks.Start(t.Context(), log, autos(t, file, g), o)
				require.NoError(t, err)
				require.NoError(t, job.SwitchGrain(t.Context(), toKey))
				behind := func() { // all tasks have processed what is in the log
					tail, err := log.Tail(t.Context())
					require.NoError(t, err)
					eventually(t, func() bool {
						return !slices.ContainsFunc(job.Status(), func(s tasks.Status) bool { return s.Stage == "by-key" && s.Through < tail })
					})
				}
				behind()
				switch begins {
				case "newcomer":
					_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 6})
				case "receiver":
					_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 1})
				case "restored behind a rescale":
					_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 1})
					require.NoError(t, err)
					behind()
					_, err = job.Fail(t.Context(), 1, 0)
				case "restored":
					for task := range 2 {
						_, err = job.Fail(t.Context(), 1, task)
						require.NoError(t, err)
					}
				case "started again":
					job.Stop()
					job, err = tasks.Start(t.Context(), log, autos(t, file, g), o)
				}
				require.NoError(t, err)
				g.open.Store(true)
				require.NoError(t, job.Wait())
				want, late := logged(t, log, job.Layout())
				require.Greater(t, late, 100, "the test cannot fail")
				sameRows(t, want, lines(t, file))
			})
		}
	}
}

// stuck is a job of autos whose only task of by-key stands at its first item above 1000, until goes is called; 4000 items are
// in the log, and below them what switches the grain first.
type stuck struct {
	*tasks.Job
	t    *testing.T
	log  sharedlog.Log
	file string
	goes func()
	rest *atomic.Bool // opens what is above 4000
}

func newStuck(t *testing.T, o tasks.Options, first ...tasks.SwitchGrain) *stuck {
	j := &stuck{t: t, log: mem.New(mem.Options{}), file: filepath.Join(t.TempDir(), "out")}
	w := newWorld(6, 20_000, 1)
	var src operators.Source[int64] = optest.Items(delay, w.parts...)
	var open []*atomic.Bool
	for _, limit := range []uint64{4000, 1100, 1000} {
		g := gate{src, new(atomic.Bool), limit}
		src, open = g, append(open, g.open)
	}
	var armed atomic.Bool
	stands, goes := make(chan struct{}), make(chan struct{})
	plan := autos(t, j.file, src, func(*int64, *int64) bool {
		if armed.CompareAndSwap(true, false) {
			close(stands)
			<-goes
		}
		return true
	})
	o.Parallelism, o.Groups, o.CommitInterval, o.Logger, o.GrainInterval = 1, 8, time.Millisecond, quiet, -1
	job, err := tasks.Start(t.Context(), j.log, plan, o)
	require.NoError(t, err)
	j.Job, j.goes, j.rest = job, sync.OnceFunc(func() { close(goes) }), open[0]
	t.Cleanup(func() {
		j.goes()
		job.Stop()
	})
	eventually(t, func() bool { return items(job, "by-key") == 1000 })
	for _, g := range first {
		require.NoError(t, job.SwitchGrain(t.Context(), g))
		tail, err := j.log.Tail(t.Context())
		require.NoError(t, err)
		eventually(t, func() bool {
			return !slices.ContainsFunc(job.Status(), func(s tasks.Status) bool { return s.Stage == "by-key" && s.Through < tail })
		})
	}
	armed.Store(true)
	open[2].Store(true)
	<-stands
	open[1].Store(true)
	eventually(t, func() bool { return itemsOn(t, j.log, job.Layout().Streams[0].Data) == 4000 })
	return j
}

func eventually(t *testing.T, f func() bool) { require.Eventually(t, f, time.Minute, time.Millisecond) }

// plan returns the number of the newest plan.
func (j *stuck) plan() uint64 {
	tail, err := j.log.Tail(j.t.Context())
	require.NoError(j.t, err)
	e, ok, err := j.log.Last(j.t.Context(), tags.Control(j.Layout().Job), tail)
	require.NoError(j.t, err)
	require.True(j.t, ok)
	var p envelope.Plan
	require.NoError(j.t, p.Parse(e.Data))
	return p.Number
}

// finish checks the rows.
func (j *stuck) finish() {
	j.rest.Store(true)
	require.NoError(j.t, j.Wait())
	want, late := logged(j.t, j.log, j.Layout())
	require.Greater(j.t, late, 100, "the test cannot fail")
	sameRows(j.t, want, lines(j.t, j.file))
}

var toKey = tasks.SwitchGrain{Stage: "by-key", Grain: tasks.Grain{PerKey: true}}

// A giver releases key groups below the plan of the rescale. The newcomer begins there, with the grain that the giver had: that
// of a plan below it, and not yet that of a plan above it, which it takes over as it gets there.
func TestNewcomerBetweenPlans(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		for _, switched := range []string{"below", "above"} {
			t.Run(protocol+"/"+switched, func(t *testing.T) {
				t.Parallel()
				var j *stuck
				if switched == "below" {
					j = newStuck(t, tasks.Options{Protocol: protocol}, toKey)
				} else {
					j = newStuck(t, tasks.Options{Protocol: protocol})
					require.NoError(t, j.SwitchGrain(t.Context(), toKey))
				}
				var rescaled sync.WaitGroup
				rescaled.Go(func() {
					_, err := j.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2})
					require.NoError(t, err)
				})
				eventually(t, func() bool { return j.plan() == 3 })
				j.goes()
				rescaled.Wait()
				j.finish()
			})
		}
	}
}

// While key groups move no plan is made that would replace the one that moves them. A call that asks for another grain waits, and may
// give up.
func TestSwitchWaitsForMoves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	j := newStuck(t, tasks.Options{Observer: func(e observe.Event) {
		if e.Step == observe.RescalePlanned {
			cancel()
		}
	}})
	_, err := j.Rescale(ctx, tasks.Rescale{Stage: "by-key", Tasks: 4, Batch: 1})
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 2, j.plan())
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	require.ErrorIs(t, j.SwitchGrain(short, toKey), context.DeadlineExceeded)
	require.EqualValues(t, 2, j.plan())
	j.goes()
	require.NoError(t, j.SwitchGrain(t.Context(), toKey))
	require.EqualValues(t, 3, j.plan())
	_, err = j.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 3})
	require.NoError(t, err)
	j.finish()
}

// A process that does not know what became of its request asks again: if the grain is what it asks for, no other plan is made.
func TestSwitchedAlready(t *testing.T) {
	j := newStuck(t, tasks.Options{})
	for range 2 {
		require.NoError(t, j.SwitchGrain(t.Context(), toKey))
		require.EqualValues(t, 2, j.plan())
	}
	j.goes()
	j.finish()
}

// What cannot be done is refused with a reason.
func TestSwitchRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	for _, protocol := range []string{"txn", "aligned", "unsafe"} {
		_, err := tasks.Describe(autos(t, file, optest.Items(0, []optest.Timed[int64]{})), tasks.Options{Protocol: protocol, Logger: quiet})
		require.ErrorContains(t, err, fmt.Sprintf(`the tasks of stage "by-key" cannot change their grain while they run (WatermarkPer(Auto)) under the protocol %s: use fused or marker, or Key with a delay of 0 ms or more, or Task`, protocol))
	}
	w := newWorld(1, 2000, 1)
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 100}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), autos(t, file, g), tasks.Options{Parallelism: 1, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet})
	require.NoError(t, err)
	to := func(stage string, delay int64) error {
		return job.SwitchGrain(t.Context(), tasks.SwitchGrain{Stage: stage, Grain: tasks.Grain{PerKey: true, Delay: delay}})
	}
	require.ErrorContains(t, to("nothing", 0), `switch the grain of stage "nothing": the job has no stage "nothing"; it has`)
	require.ErrorContains(t, to("keys", 0), "the keys of stage keys have the clocks that its author chose: give its stream WatermarkPer(Auto, delay)")
	require.ErrorContains(t, to("by-key", -1), "the delay of the clocks of stage by-key is 0 ms at least, as its author says; not -1 ms")
	g.open.Store(true)
	require.NoError(t, job.Wait())
	require.ErrorIs(t, to("by-key", 0), tasks.ErrEnded)
	sameRows(t, w.want, lines(t, file))
}
