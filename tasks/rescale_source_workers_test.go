package tasks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
)

// Partitions of a source move between tasks of two processes, as a third one asks, while each of the
// three dies and another one takes its place: the rows are those of an undisturbed job, with state in the stage
// of the source and without, whether the processes reach each other or not.
func TestSourceRescaledInOtherProcesses(t *testing.T) {
	const parts = 6
	var rescaled, served atomic.Int64
	t.Run("all", func(t *testing.T) {
		for seed := range uint64(16) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 12))
				w := newWorld(seed, 60_000, parts)
				file := filepath.Join(t.TempDir(), "out")
				open := new(atomic.Bool)
				plan := counts(t, file, skewed{optest.Items(delay, w.parts...), open, 8})
				if seed%4 >= 2 {
					plan = ahead(t, &w, parts, file, open, 8)
				}
				var store checkpoint.Store
				if rng.IntN(3) > 0 {
					store = storetest.NewMem()
				}
				connect := func(l *link) { l.store = store }
				if rng.IntN(4) == 0 {
					connect = nil // each process restores what comes from the other one
				}
				f := fleetOf(t, plan, tasks.Options{Protocol: []string{"fused", "marker"}[seed%2]}, connect)
				f.follow(0)
				trimmer, err := f.spec.Trimmer(f.log, f.id)
				require.NoError(t, err)

				life, end := context.WithCancel(t.Context())
				defer end()
				var crashes atomic.Int64
				drives := make(chan context.CancelFunc, 1) // has that of the drive that runs
				var rescales sync.WaitGroup
				rescales.Go(func() {
					goals := rand.New(rand.NewPCG(seed, 13))
					for done := 0; life.Err() == nil; done++ {
						if done >= 3 && crashes.Load() >= 6 {
							open.Store(true)
						}
						if !f.rescaleSource(life, drives, goals, parts) {
							break
						}
						rescaled.Add(1)
					}
					open.Store(true)
				})
				reading := func() bool {
					f.mu.Lock()
					defer f.mu.Unlock()
					for k, h := range f.tasks {
						if k[0] == 0 && !over(h) {
							return true
						}
					}
					return false
				}
				tail := func() sharedlog.LSN {
					at, err := f.log.Tail(t.Context())
					require.NoError(t, err)
					return at
				}
				for reading() {
					for at := tail() + sharedlog.LSN(rng.IntN(200)); reading() && tail() < at; {
						runtime.Gosched()
					}
					_, err := trimmer.Round(t.Context(), 0)
					require.NoError(t, err)
					if crashes.Add(1) > 20 {
						continue
					}
					switch who := rng.IntN(3); who {
					case 2:
						select {
						case cancel := <-drives:
							cancel()
						default: // it is between two
						}
					default:
						f.crash(who)
					}
				}
				rescales.Wait()
				f.end()
				sameRows(t, w.want, lines(t, file))
				served.Add(int64(f.count(observe.RescaleServed)))
				t.Log(min(crashes.Load(), 20), "crashes")
			})
		}
	})
	t.Log(rescaled.Load(), "rescales,", served.Load(), "frames of state between processes")
	require.Greater(t, rescaled.Load(), int64(32), "most jobs ended before their rescales: the test shows nothing")
	require.NotZero(t, served.Load())
}

// rescaleSource gives the stage of the source another number of tasks, or other owners, over as many processes as
// it takes. It reports false if the stage has ended.
func (f *fleet) rescaleSource(life context.Context, drives chan context.CancelFunc, goals *rand.Rand, parts int) bool {
	r := rescale.Request{Stage: "keys", Tasks: 1 + goals.IntN(parts), Batch: goals.IntN(3), Mode: aMode(goals)}
	if r.Mode == rescale.ModeRestart { // refused
		r.Mode = rescale.ModeMove
	}
	if goals.IntN(2) == 0 { // tasks that stay exchange partitions
		r.Owners = make([]int, parts)
		for g, k := range goals.Perm(parts) {
			r.Owners[g] = k % r.Tasks
		}
	}
	asked := []rescale.Request{r}
	for {
		ctx, cancel := context.WithTimeout(life, time.Minute)
		drives <- cancel
		var last *rescale.Progress
		err := f.drive(ctx, asked, func(p *rescale.Progress) { last = p })
		select {
		case <-drives:
		default: // it was cancelled
		}
		late := ctx.Err() == context.DeadlineExceeded
		cancel()
		switch {
		case late:
			f.t.Errorf("a rescale to %+v does not end: %v", r, err)
			return false
		case err == nil:
			return len(last.Done) == 0 || last.Done[0].Error == ""
		case last != nil && last.Goal:
			asked = nil // the goal is in the plan
		}
	}
}

// gates is a source with a gate for each partition.
type gates struct {
	operators.Source[int64]
	of []gate
}

func (g gates) Open(p int) (operators.Partition[int64], error) { return g.of[p].Open(p) }

// Task 0, of a process that does not follow the plans, has ended before it knew of one, or comes to know of it late. What
// was to come from it, or to go to it, stays where it is, also when the process of the other task dies after the log of
// task 0 was trimmed up to its end; otherwise it moves.
func TestSourceThatDoesNotKnowThePlan(t *testing.T) {
	for _, c := range []struct {
		name   string
		owners []int // of 0, 0, 1, 1
		late   bool
	}{
		{"a receiver has ended", []int{0, 0, 0, 1}, false},
		{"a giver has ended", []int{0, 1, 1, 1}, false},
		{"a receiver comes to know", []int{0, 0, 0, 1}, true},
		{"a giver comes to know", []int{0, 1, 1, 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 40_000, 4)
			file := filepath.Join(t.TempDir(), "out")
			g := gates{optest.Items(delay, w.parts...), nil}
			first, second := new(atomic.Bool), new(atomic.Bool) // those of task 0, those of task 1
			for p := range 4 {
				of := gate{g.Source, first, 500}
				if p >= 2 {
					of.open = second
				}
				if to := c.owners[1+p/2]; to != p/2 {
					of.limit = 4000 // a giver is ahead, so it releases when it can
				}
				g.of = append(g.of, of)
			}
			f := fleetOf(t, counts(t, file, g), tasks.Options{Protocol: "fused"}, nil)
			planned := make(chan struct{})
			var once sync.Once
			var drive sync.WaitGroup
			var last *rescale.Progress
			drive.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				err := f.drive(ctx, []rescale.Request{{Stage: "keys", Tasks: 2, Owners: c.owners}}, func(p *rescale.Progress) {
					if last = p; len(p.Stages) > 0 && p.Stages[0].Moved > 0 {
						once.Do(func() { close(planned) })
					}
				})
				if err != nil {
					t.Errorf("the rescale does not end, as of a task that never learns of the plan: %v", err)
				}
			})
			<-planned
			if c.late {
				f.follow(0)
				drive.Wait()
				require.False(t, t.Failed())
				require.Len(t, last.Done, 1)
				require.Equal(t, 1, last.Done[0].Result.GroupsMoved)
				for task := range 2 {
					k := [2]int{0, task}
					have := int64(2)
					if c.owners[1] == 1 {
						have += int64(2*task - 1)
					} else {
						have += int64(1 - 2*task)
					}
					require.Equal(t, have, f.tasks[k].Status().KeyGroups, "of task %d", task)
				}
			} else {
				first.Store(true)
				<-f.tasks[[2]int{0, 0}].Done()
				drive.Wait()
				trimmer, err := f.spec.Trimmer(f.log, f.id)
				require.NoError(t, err)
				_, err = trimmer.Round(t.Context(), 0)
				require.NoError(t, err)
				f.crash(1)
			}
			first.Store(true)
			second.Store(true)
			f.end()
			sameRows(t, w.want, lines(t, file))
		})
	}
}
