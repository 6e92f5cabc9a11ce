package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
)

// all is a job whose function has all kinds of state: values, a map and its timers, a list, of which one key has more
// than a frame, timers of event time, and of the wall clock. Its answer does not depend on the order of the items.
type all struct {
	plan  *operators.Plan
	gate  gate
	file  string
	want  []string
	early map[int64]bool // keys that have items in front of the gate
}

const allKeys, allItems, allEarly = 300, 9000, 1500

func newAll(t *testing.T) *all {
	x := &all{file: filepath.Join(t.TempDir(), "out")}
	rng := rand.New(rand.NewPCG(3, 1))
	parts := make([][]optest.Timed[int64], 2)
	type answer struct {
		n, sum, list int64
		odd          map[int64]bool
	}
	answers, early := map[int64]*answer{}, map[int64]bool{}
	for i := range int64(allItems) {
		key := rng.Int64N(allKeys) * rng.Int64N(8) / 7
		if rng.IntN(10) == 0 {
			key = 0
		}
		v, p := key*allItems+i, rng.IntN(2)
		parts[p] = append(parts[p], optest.At(i, v))
		if len(parts[p]) <= allEarly {
			early[key] = true
		}
		a := answers[key]
		if a == nil {
			a = &answer{odd: map[int64]bool{}}
			answers[key] = a
		}
		a.n++
		a.sum += v
		if a.odd[v%5] = !a.odd[v%5]; !a.odd[v%5] {
			delete(a.odd, v%5)
		}
		if key < 2 {
			a.list++
		}
	}
	for k, a := range answers {
		x.want = append(x.want, fmt.Sprintf("%d: %d %d %d %d", k, a.n, a.sum, a.list, len(a.odd)))
		if early[k] {
			x.want = append(x.want, fmt.Sprintf("%d wall", k))
		}
	}
	slices.Sort(x.want)
	x.early = early
	x.gate = gate{optest.Items(delay, parts...), new(atomic.Bool), allEarly}
	job := operators.NewJob("all")
	spread := operators.Rebalance(operators.FromSource(job, "keys", x.gate, serde.Int64), "spread")
	keyed := operators.KeyBy(spread, "by-key", serde.Int64, func(v *int64) int64 { return *v / allItems })
	rows := operators.Process(keyed, "all", func(c *operators.Context[int64, string]) operators.Handler[int64] {
		n, sum := operators.NewValue(c, "n", serde.Int64), operators.NewValue(c, "sum", serde.Int64)
		odd := operators.NewMap(c, "odd", serde.Int64, serde.Int64, operators.TTL(24*time.Hour))
		list := operators.NewList(c, "list", serde.String)
		return operators.Handler[int64]{
			Item: func(v *int64) {
				if n.Get() == nil {
					c.SetWallTimer(c.Now() + 500)
					c.SetEventTimer(2 * allItems)
				}
				*n.Upsert()++
				*sum.Upsert() += *v
				if s := *v % 5; odd.Get(s) != nil {
					odd.Delete(s)
				} else {
					*odd.Upsert(s) = *v
				}
				if c.Key() < 2 {
					text := strings.Repeat("x", 1000)
					list.Add(c.Time(), &text)
				}
			},
			Timers: operators.Timers{
				OnWall: func(int64) { c.Emit(fmt.Sprintf("%d wall", c.Key()), 0) },
				OnEvent: func(t int64) {
					c.Emit(fmt.Sprintf("%d: %d %d %d %d", c.Key(), *n.Get(), *sum.Get(), len(list.All()), len(odd.Keys())), t)
				},
			},
		}
	})
	operators.ToSink(rows, "out", operators.FileSink(x.file, func(dst []byte, r *operators.KV[int64, string]) []byte {
		return append(append(dst, r.Value...), '\n')
	}, false))
	var err error
	x.plan, err = job.Plan()
	require.NoError(t, err)
	return x
}

// wall returns how many rows timers of the wall clock have made.
func (x *all) wall() int {
	b, _ := os.ReadFile(x.file)
	return strings.Count(string(b), "wall\n")
}

// kill ends a task as its process would, and starts it again.
func (f *fleet) kill(stage, task int) {
	k := [2]int{stage, task}
	f.mu.Lock()
	h := f.tasks[k]
	if h == nil || f.retired[k] || over(h) || h.Instance() == 0 {
		f.mu.Unlock()
		return
	}
	h.Kill()
	f.mu.Unlock()
	<-h.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.retired[k] || f.tasks[k] != h || h.Err() == nil {
		return // it has left, or ended
	}
	_, err := f.start(k, h.Newcomer())
	require.NoError(f.t, err)
}

// Whatever state a function has, it is there once where its key is, and its timers fire once: when key groups come in
// parts, when the connection is lost between two of them, and when the tasks that give and take them are killed.
func TestAllStateComesInParts(t *testing.T) {
	for _, c := range []struct {
		name        string
		lost, kills bool
	}{{name: "all comes"}, {name: "connections are lost", lost: true}, {name: "tasks are killed", kills: true}, {name: "both", lost: true, kills: true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := newAll(t)
			var n atomic.Int64
			var f *fleet
			kill := make(chan int, 1)
			f = fleetOf(t, x.plan, tasks.Options{Protocol: "fused"}, func(l *link) {
				l.receive = func(b []byte) ([]byte, error) {
					of, err := copies.Parse(b)
					if err != nil || of.Kind != copies.Parts && of.Kind != copies.Some {
						return b, nil
					}
					i := n.Add(1)
					if c.lost && i%25 == 0 {
						return nil, errors.New("the connection is lost")
					}
					if c.kills && i%12 == 0 {
						select {
						case kill <- int(i):
						default:
						}
					}
					return b, nil
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			killed := make(chan struct{})
			go func() {
				defer close(killed)
				for {
					select {
					case i := <-kill:
						f.kill(byKey, i/12*7%5)
					case <-ctx.Done():
						return
					}
				}
			}()
			require.Eventually(t, func() bool { return f.keys(byKey) >= int64(len(x.early)) }, time.Minute, time.Millisecond, "there is state to move")
			for i, n := range []int{5, 1, 3, 2, 4} {
				if i == 2 {
					require.Eventually(t, func() bool { return x.wall() >= len(x.early) }, time.Minute, time.Millisecond, "timers of the wall clock fire")
					x.gate.open.Store(true)
				}
				require.NoError(t, f.drive(t.Context(), []rescale.Request{{Stage: "by-key", Tasks: n, Batch: 2}}, func(*rescale.Progress) {}))
			}
			cancel()
			<-killed
			f.end()
			rows := slices.DeleteFunc(lines(t, x.file), func(r string) bool { // the job may end before these timers are due
				var k int64
				_, err := fmt.Sscanf(r, "%d wall", &k)
				return err == nil && !x.early[k]
			})
			sameRows(t, x.want, rows)
			require.NotZero(t, f.count(observe.RescaleCopied))
			if !c.lost && !c.kills {
				require.Zero(t, f.count(observe.RecoveryReplaying))
			}
		})
	}
}
