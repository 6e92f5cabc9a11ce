package tasks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
)

// changesRead is a log that counts the records which the readers of change logs get.
type changesRead struct {
	sharedlog.Log
	mu      sync.Mutex
	times   map[sharedlog.LSN]int
	follows int // readers without an end
	// hold: what standbys follow does not come.
	hold bool
}

func (l *changesRead) NewReader(o sharedlog.ReaderOptions) (sharedlog.Reader, error) {
	r, err := l.Log.NewReader(o)
	if err != nil || len(o.Tags) == 0 || !strings.HasPrefix(string(o.Tags[0]), "C/") {
		return r, err
	}
	if o.Until == 0 {
		l.mu.Lock()
		l.follows++
		l.mu.Unlock()
	}
	return changesReader{r, l, l.hold && o.Until == 0}, nil
}

type changesReader struct {
	sharedlog.Reader
	l    *changesRead
	hold bool
}

func (r changesReader) Next(ctx context.Context) (sharedlog.Batch, error) {
	if r.hold {
		<-ctx.Done()
		return sharedlog.Batch{}, ctx.Err()
	}
	b, err := r.Reader.Next(ctx)
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	for i := range b.Entries {
		r.l.times[b.Entries[i].LSN]++
	}
	return b, err
}

// read returns how many records below an LSN were read, and how many of them more than once.
func (l *changesRead) read(below sharedlog.LSN) (some, again int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, n := range l.times {
		if at < below {
			some++
			if n > 1 {
				again++
			}
		}
	}
	return some, again
}

// standby keeps a warm copy of a task in the process in which it does not run.
func (f *fleet) standby(ctx context.Context, stage, task int) {
	f.wait.Go(func() { _ = f.executors[(stage+task+1)%2].Load().Standby(ctx, stage, task) }) // it ends with ctx, or is taken over
}

// changes returns how many records the change logs of a task of by-key have below the tail.
func (f *fleet) changes(t *testing.T, task int) (n int, tail sharedlog.LSN) {
	tail, err := f.log.Tail(t.Context())
	require.NoError(t, err)
	l := f.executors[0].Load().Layout()
	o := sharedlog.ReaderOptions{From: sharedlog.First, Until: tail, BelowFloor: true}
	for _, g := range l.Owned(byKey, task) {
		o.Tags = append(o.Tags, l.Stages[byKey].Changes[g])
	}
	r, err := f.log.NewReader(o)
	require.NoError(t, err)
	for {
		b, err := r.Next(t.Context())
		if err != nil {
			break
		}
		n += len(b.Entries)
	}
	require.NoError(t, r.Close())
	return n, tail
}

// crossed returns owners of the groups of by-key: two of those of each of its two tasks go to a newcomer in
// the other process.
func (f *fleet) crossed() (owners []int) {
	owners = slices.Clone(f.executors[0].Load().Layout().Stages[byKey].Owner)
	for task := range 2 {
		for _, g := range f.executors[0].Load().Layout().Owned(byKey, task)[:2] {
			owners[g] = 3 - task
		}
	}
	return owners
}

// A newcomer whose process has a warm copy of its giver takes the groups from it: no process sends
// anything, and no change record that the copy has is read again. Nor is it if the copy is behind.
func TestNewcomerTakesStandbysCopy(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		for _, behind := range []bool{false, true} {
			t.Run(fmt.Sprint(protocol, " behind ", behind), func(t *testing.T) {
				t.Parallel()
				w := newWorld(1, 20_000, 2)
				file := filepath.Join(t.TempDir(), "out")
				g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
				var logs []*changesRead
				var opened atomic.Int64
				f := newFleet(t, file, g, protocol, func(l *link) {
					logs = append(logs, &changesRead{Log: l.f.log, times: map[sharedlog.LSN]int{}, hold: behind})
					l.log, l.open = logs[len(logs)-1], func() error { opened.Add(1); return nil }
				})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				f.standby(ctx, byKey, 0)
				f.standby(ctx, byKey, 1)
				var tail sharedlog.LSN
				require.Eventually(t, func() bool {
					if f.keys(byKey) < 40 || logs[0].following() == 0 || logs[1].following() == 0 {
						return false
					}
					zero, _ := f.changes(t, 0)
					one, at := f.changes(t, 1)
					tail = at
					read0, _ := logs[1].read(tail)
					read1, _ := logs[0].read(tail)
					return zero > 0 && one > 0 && (behind || zero == read0 && one == read1)
				}, time.Minute, time.Millisecond, "the copies have all")
				var last *rescale.Progress
				require.NoError(t, f.drive(t.Context(), []rescale.Request{{Stage: "by-key", Tasks: 4, Owners: f.crossed()}}, func(p *rescale.Progress) { last = p }))
				require.Equal(t, 4, last.Tasks[byKey])
				require.Eventually(t, func() bool { return f.count(observe.RescaleWarm)+f.count(observe.RescaleCopied) >= 2 }, time.Minute, time.Millisecond, "the groups have come")
				require.Equal(t, 2, f.count(observe.RescaleWarm), "both copies are taken")
				require.NotZero(t, f.moved().Copied)
				g.open.Store(true)
				f.end()
				sameRows(t, w.want, lines(t, file))
				require.Zero(t, opened.Load(), "streams to the giver's process")
				for _, l := range logs {
					_, again := l.read(tail)
					require.Zero(t, again, "records that were read again")
				}
			})
		}
	}
}

// Tasks are killed and replaced, and standbys end and begin again, while key groups move between processes
// again and again, and snapshots are made: the rows are right.
func TestStandbysCopiesOverFaults(t *testing.T) {
	warm := 0
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 20))
			w := newWorld(seed, 60_000, 2)
			file := filepath.Join(t.TempDir(), "out")
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
			store := storetest.NewMem()
			f := newFleet(t, file, g, []string{"fused", "marker"}[seed%2], func(l *link) {
				if seed%3 > 0 {
					l.store = store
				}
			})
			life, end := context.WithCancel(context.Background())
			defer end()
			f.wait.Go(func() { _ = f.executors[0].Load().Config().Handover.Follow(life) }) // ends with life
			const most = 6
			var stop [most]context.CancelFunc
			begin := func(task int) {
				ctx, cancel := context.WithCancel(life)
				stop[task] = cancel
				f.standby(ctx, byKey, task)
			}
			for task := range most {
				begin(task)
			}
			require.Eventually(t, func() bool { return f.keys(byKey) >= 40 }, time.Minute, time.Millisecond, "there is state to move")
			faults := 0
			for i, n := range []int{4, 2, 6, 1, 5, 3} {
				if i == 3 {
					g.open.Store(true)
				}
				done := make(chan error, 1)
				asked := []rescale.Request{{Stage: "by-key", Tasks: n, Batch: rng.IntN(3)}}
				go func() { done <- f.drive(context.WithoutCancel(t.Context()), asked, func(*rescale.Progress) {}) }()
				for moving := true; moving; {
					for to := f.total() + rng.IntN(100); moving && f.total() < to; {
						select {
						case err := <-done:
							require.NoError(t, err)
							moving = false
						default:
							runtime.Gosched()
						}
					}
					if task := rng.IntN(most); rng.IntN(2) == 0 {
						stop[task]()
						begin(task)
					} else if task < f.executors[0].Load().Layout().Stages[byKey].Tasks {
						f.replace(byKey, task, rng.IntN(2) == 0)
					}
					faults++
				}
			}
			f.end()
			end()
			sameRows(t, w.want, lines(t, file))
			t.Log(faults, "faults,", f.count(observe.RescaleWarm), "copies taken,", f.count(observe.RescaleAsking), "asked for")
			warm += f.count(observe.RescaleWarm)
		})
	}
	require.NotZero(t, warm)
}

// total returns how many steps were reached.
func (f *fleet) total() (n int) {
	f.counts.Lock()
	defer f.counts.Unlock()
	for _, c := range f.steps {
		n += c
	}
	return n
}

// replace starts another instance of a task that is none of those which wait for their plan. The one before
// was killed, or is replaced while it runs.
func (f *fleet) replace(stage, task int, kill bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := [2]int{stage, task}
	before := f.tasks[k]
	if before == nil || over(before) || f.retired[k] || before.Instance() == 0 {
		return
	}
	if kill {
		before.Kill()
		<-before.Done()
	}
	e := f.executors[(stage+task)%2].Load()
	h, err := e.Prepare(stage, task, tasks.Attempt{}, false)
	if err != nil {
		f.t.Error(err)
		return
	}
	f.tasks[k] = h
	e.Start(context.Background(), h)
}

// following returns how many readers follow change logs.
func (l *changesRead) following() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.follows
}
