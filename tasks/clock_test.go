package tasks_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/rescale"
)

// clocks is a job whose rows are the clock readings of its function, one for each item.
func clocks(t *testing.T, file string, src operators.Source[int64]) *operators.Plan {
	job := operators.NewJob("clocks")
	byKey := operators.KeyBy(operators.FromSource(job, "keys", src, serde.Int64), "by-key", serde.Int64, func(k *int64) int64 { return *k })
	told := operators.Process(byKey, "told", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
		return operators.Handler[int64]{Item: func(*int64) { c.Emit(c.Now(), c.Time()) }}
	})
	operators.ToSink(told, "out", operators.FileSink(file, func(dst []byte, r *operators.KV[int64, int64]) []byte {
		return fmt.Appendf(dst, "%d\n", r.Value)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

// A task resumes on a machine whose clock is an hour behind: for the task's functions time does not
// go back, whether the task resumes from its last commit or another job starts from its savepoint.
func TestClockDoesNotGoBack(t *testing.T) {
	const items, first = 200, 100
	var in []optest.Timed[int64]
	for i := range int64(items) {
		in = append(in, optest.At(i, i%10))
	}
	for _, protocol := range []string{"fused", "marker", "txn", "aligned", "fused, savepoint"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			protocol, other, _ := strings.Cut(protocol, ", ")
			file := filepath.Join(t.TempDir(), "out")
			ahead := time.Now().Add(time.Hour)
			var said bytes.Buffer
			log := mem.New(mem.Options{})
			o := tasks.Options{
				Protocol: protocol, Parallelism: 2, Groups: 4, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: storetest.NewMem(),
				Clock: func() time.Time { return ahead.Add(time.Since(ahead.Add(-time.Hour))) },
			}
			g := gate{optest.Items(0, in), new(atomic.Bool), first}
			job, err := tasks.Start(t.Context(), log, clocks(t, file, g), o)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return written(file) >= first }, 3*time.Minute, time.Millisecond)
			if other != "" {
				_, err := job.Savepoint(t.Context(), "one", true)
				require.NoError(t, err)
				require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
				o.Name, o.From = "second", "one"
				log = mem.New(mem.Options{})
			}
			job.Stop()

			o.Clock, o.Logger = time.Now, slog.New(slog.NewTextHandler(&said, nil))
			require.NoError(t, tasks.Run(t.Context(), log, clocks(t, file, optest.Items(0, in)), o))
			rows := lines(t, file)
			require.Len(t, rows, items)
			for _, r := range rows {
				require.GreaterOrEqual(t, r, fmt.Sprint(ahead.UnixMilli()), "the clock has gone back")
			}
			require.Contains(t, said.String(), "the clock is behind")
		})
	}
}

// A task takes over key groups from one whose machine is an hour ahead: for the functions of their keys time
// does not go back.
func TestClockOfAGiver(t *testing.T) {
	const items, first, byKey = 400, 200, 1
	var in []optest.Timed[int64]
	for i := range int64(items) {
		in = append(in, optest.At(i, i%20))
	}
	for i, protocol := range []string{"fused", "marker", "fused", "marker"} {
		ahead := i / 2
		t.Run(fmt.Sprint(protocol, ", process ", ahead, " is ahead"), func(t *testing.T) {
			job := operators.NewJob("clocks")
			g := gate{optest.Items(0, in), new(atomic.Bool), first}
			keyed := operators.KeyBy(operators.FromSource(job, "keys", g, serde.Int64), "by-key", serde.Int64, func(k *int64) int64 { return *k })
			told := operators.Process(keyed, "told", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
				return operators.Handler[int64]{Item: func(*int64) { c.Emit(c.Now(), c.Time()) }}
			})
			var mu sync.Mutex
			seen, n := map[int64]int64{}, 0
			operators.ToSink(told, "out", operators.FuncSink(func(b *operators.Batch[operators.KV[int64, int64]]) error {
				mu.Lock()
				defer mu.Unlock()
				for _, r := range b.Items {
					if r.Value < seen[r.Key] {
						t.Errorf("the clock of key %d has gone back from %d to %d", r.Key, seen[r.Key], r.Value)
					}
					seen[r.Key] = r.Value
					n++
				}
				return nil
			}))
			plan, err := job.Plan()
			require.NoError(t, err)
			f := fleetOf(t, plan, tasks.Options{Protocol: protocol}, func(l *link) {
				if l.me == ahead {
					l.clock = func() time.Time { return time.Now().Add(time.Hour) }
				}
			})
			require.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return n == first
			}, time.Minute, time.Millisecond)
			require.NoError(t, f.drive(t.Context(), []rescale.Request{{Stage: "by-key", Tasks: 1}}, func(*rescale.Progress) {}))
			g.open.Store(true)
			f.end()
			require.Equal(t, items, n)
		})
	}
}

// More wall timers than fit a group became due while a job was down: all fire.
func TestWallTimersAfterAnOutage(t *testing.T) {
	const keys, size = 20, 1 << 20
	var in []optest.Timed[int64]
	for i := range int64(keys) {
		in = append(in, optest.At(i, i))
	}
	for _, protocol := range []string{"fused", "marker", "txn", "aligned"} {
		t.Run(protocol, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			plan := func(src operators.Source[int64]) *operators.Plan {
				job := operators.NewJob("timers")
				byKey := operators.KeyBy(operators.FromSource(job, "keys", src, serde.Int64), "by-key", serde.Int64, func(k *int64) int64 { return *k })
				fired := operators.Process(byKey, "later", func(c *operators.Context[int64, string]) operators.Handler[int64] {
					return operators.Handler[int64]{
						Item: func(*int64) {
							c.SetWallTimer(c.Now() + time.Hour.Milliseconds())
							c.Emit("set", c.Time())
						},
						Timers: operators.Timers{OnWall: func(int64) { c.Emit(strings.Repeat("x", size), c.Watermark()) }},
					}
				})
				operators.ToSink(fired, "out", operators.FileSink(file, func(dst []byte, r *operators.KV[int64, string]) []byte {
					return fmt.Appendf(dst, "%d %d\n", r.Key, len(r.Value))
				}, false))
				plan, err := job.Plan()
				require.NoError(t, err)
				return plan
			}
			log := mem.New(mem.Options{})
			o := tasks.Options{Protocol: protocol, Parallelism: 1, Groups: 4, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: storetest.NewMem()}
			open := new(atomic.Bool)
			wait := func(rows int) {
				require.Eventually(t, func() bool { return written(file) >= rows }, 3*time.Minute, 5*time.Millisecond)
			}
			job, err := tasks.Start(t.Context(), log, plan(waits{optest.Items(0, in), open}), o)
			require.NoError(t, err)
			wait(keys)
			job.Stop()
			o.Clock = func() time.Time { return time.Now().Add(2 * time.Hour) }
			job, err = tasks.Start(t.Context(), log, plan(waits{optest.Items(0, in), open}), o)
			require.NoError(t, err)
			wait(2 * keys)
			open.Store(true)
			require.NoError(t, job.Wait())
			fired := 0
			for _, r := range lines(t, file) {
				if strings.HasSuffix(r, fmt.Sprint(" ", size)) {
					fired++
				}
			}
			require.Equal(t, keys, fired)
		})
	}
}

// written counts the rows in a file, which may not exist yet.
func written(file string) int {
	b, _ := os.ReadFile(file)
	return bytes.Count(b, []byte("\n"))
}

// waits is a source that does not end before it is opened.
type waits struct {
	operators.Source[int64]
	open *atomic.Bool
}

func (w waits) Open(p int) (operators.Partition[int64], error) {
	part, err := w.Source.Open(p)
	return waitsPartition{part, w.open}, err
}

type waitsPartition struct {
	operators.Partition[int64]
	open *atomic.Bool
}

func (p waitsPartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	st, err := p.Partition.Read(b, most, now)
	if st.State == operators.Ended && !p.open.Load() {
		st.State, st.Due = operators.Waiting, now+1
	}
	return st, err
}
