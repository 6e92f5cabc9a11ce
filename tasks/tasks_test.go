package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

const delay = 50 // disorder of the inputs, ms

// world is an input in several partitions and the expected answer of the job below.
type world struct {
	parts [][]optest.Timed[int64]
	want  []string
}

// newWorld draws n keys over time, out of order by up to delay, and counts them
// per key and 100 ms by plain loops.
func newWorld(seed uint64, n, parts int) world {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := world{parts: make([][]optest.Timed[int64], parts)}
	counts := map[[2]int64]int{}
	for i := range n {
		at := int64(i) - rng.Int64N(delay)
		key := rng.Int64N(20) * rng.Int64N(20)
		p := rng.IntN(parts)
		w.parts[p] = append(w.parts[p], optest.At(at, key))
		counts[[2]int64{(at + 1000) / 100, key}]++
	}
	for k, c := range counts {
		w.want = append(w.want, fmt.Sprintf("%d %d %d", (k[0]-10)*100, k[1], c))
	}
	slices.Sort(w.want)
	return w
}

// plan counts each key per 100 ms, in two repartitions, into a file.
func (w world) plan(t *testing.T, file string) *operators.Plan {
	return counts(t, file, optest.Items(delay, w.parts...))
}

func counts(t *testing.T, file string, src operators.Source[int64]) *operators.Plan {
	return countsBy(t, file, src)
}

// countsBy is counts with options of the keyed stream.
func countsBy(t *testing.T, file string, src operators.Source[int64], opts ...operators.RouteOption) *operators.Plan {
	job := operators.NewJob("counts")
	keys := operators.FromSource(job, "keys", src, serde.Int64)
	spread := operators.Rebalance(keys, "spread")
	byKey := operators.KeyBy(spread, "by-key", serde.Int64, func(k *int64) int64 { return *k }, opts...)
	counts := operators.CountWindows(byKey, operators.Tumbling(100*time.Millisecond))
	operators.ToSink(counts, "out", operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
		return fmt.Appendf(dst, "%d %d %d\n", c.Value.Start, c.Key, c.Value.Value)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

func lines(t *testing.T, file string) []string {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	slices.Sort(rows)
	return rows
}

// sameRows compares sorted rows and shows the first few that differ.
func sameRows(t *testing.T, want, got []string) {
	t.Helper()
	var diff []string
	for i, j := 0, 0; (i < len(want) || j < len(got)) && len(diff) < 8; {
		switch {
		case j == len(got) || i < len(want) && want[i] < got[j]:
			diff = append(diff, "missing "+want[i])
			i++
		case i == len(want) || got[j] < want[i]:
			diff = append(diff, "too much "+got[j])
			j++
		default:
			i, j = i+1, j+1
		}
	}
	require.Empty(t, diff, "%d rows, %d expected", len(got), len(want))
}

// items is how many items a stage's tasks report as processed, in all instances.
func items(job *tasks.Job, stage string) int {
	n := 0
	for _, s := range job.Status() {
		if s.Stage == stage {
			n += int(s.Items())
		}
	}
	return n
}

// events is the number of events in the input.
func (w world) events() (n int) {
	for _, p := range w.parts {
		n += len(p)
	}
	return n
}

func open(t *testing.T, dir string) sharedlog.Log {
	log, err := embedded.Open(dir, embedded.Options{SegmentBytes: 64 << 10, CacheBytes: 128 << 10, Logger: quiet})
	require.NoError(t, err)
	return log
}

func TestAnswers(t *testing.T) {
	w := newWorld(1, 4000, 3)
	for _, protocol := range []string{"fused", "marker", "txn", "unsafe", "aligned", "aligned-early"} {
		for _, parallelism := range []int{1, 4} {
			for _, groups := range []int{8, 64} {
				t.Run(fmt.Sprintf("%s/%d/%d", protocol, parallelism, groups), func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					log := open(t, dir)
					file := filepath.Join(dir, "out")
					require.NoError(t, tasks.Run(t.Context(), log, w.plan(t, file), tasks.Options{
						Protocol: protocol, Parallelism: parallelism, Groups: groups, Checkpoints: storetest.NewMem(),
						CommitInterval: 2 * time.Millisecond, CommitBytes: 2 << 10, Logger: quiet,
					}))
					sameRows(t, w.want, lines(t, file))
					require.NoError(t, log.Close())
				})
			}
		}
	}
}

// The job is stopped as by a crash at random moments, the log opened anew, and the job run again,
// until it ends; the rows are those of an undisturbed run.
func TestExactlyOnceOverCrashes(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn"} {
		// A life of a few milliseconds has time for fewer of a transaction's round trips.
		w := newWorld(2, map[string]int{"fused": 60_000, "marker": 60_000, "txn": 12_000}[protocol], 3)
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", protocol, seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 3))
				dir := t.TempDir()
				file := filepath.Join(dir, "out")
				o := tasks.Options{
					Protocol: protocol, Parallelism: 2, Groups: 8,
					CommitInterval: time.Millisecond, CommitBytes: 4 << 10, Logger: quiet,
					TrimBytes: 1, TrimInterval: time.Millisecond, SnapshotInterval: time.Millisecond,
				}
				crashes := 0
				for done := false; !done; {
					log := open(t, dir)
					var err error
					o.Checkpoints, err = checkpoint.OpenPebble(filepath.Join(dir, "checkpoints"))
					require.NoError(t, err)
					job, err := tasks.Start(t.Context(), log, w.plan(t, file), o)
					require.NoError(t, err)
					after := time.NewTimer(time.Duration(2+rng.IntN(20)) * time.Millisecond)
					select {
					case <-after.C:
						job.Stop()
					case <-job.Done():
					}
					if done = job.Wait() == nil; !done {
						require.ErrorIs(t, job.Wait(), context.Canceled)
						crashes++
					} else { // work that was repeated counts once
						require.Equal(t, w.events(), items(job, "keys"))
						require.Equal(t, len(w.want), items(job, "out"))
					}
					require.NoError(t, o.Checkpoints.Close())
					require.NoError(t, log.Close())
				}
				sameRows(t, w.want, lines(t, file))
				require.NotZero(t, crashes)

				// Run again, the job ends at once and leaves the file as it is (T17).
				before, err := os.ReadFile(file)
				require.NoError(t, err)
				log := open(t, dir)
				tail, err := log.Tail(t.Context())
				require.NoError(t, err)
				require.NoError(t, tasks.Run(t.Context(), log, w.plan(t, file), o))
				after, err := os.ReadFile(file)
				require.NoError(t, err)
				require.True(t, bytes.Equal(before, after))
				now, err := log.Tail(t.Context())
				require.NoError(t, err)
				require.Equal(t, tail, now)
				require.NoError(t, log.Close())
			})
		}
	}
}

// The store of snapshots loses its newest writes at each crash, as a replica that takes over would,
// and is unavailable for a while: no state is lost (pitfall G3).
func TestStoreThatForgets(t *testing.T) {
	w := newWorld(2, 300000, 3)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 5))
			dir := t.TempDir()
			file := filepath.Join(dir, "out")
			store := storetest.NewMem()
			o := tasks.Options{
				Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, CommitBytes: 4 << 10, Logger: quiet,
				TrimBytes: 1, TrimInterval: time.Millisecond, Checkpoints: store, SnapshotInterval: time.Millisecond,
			}
			forgot, snapshots := 0, uint64(0)
			for done := false; !done; {
				log, err := embedded.Open(dir, embedded.Options{FsyncInterval: time.Millisecond, SegmentBytes: 1 << 20, Logger: quiet})
				require.NoError(t, err)
				job, err := tasks.Start(t.Context(), log, w.plan(t, file), o)
				require.NoError(t, err)
				made := func() (n uint64) {
					for _, s := range job.Status() {
						if s.Snapshots != nil {
							n += s.Snapshots.Made
						}
					}
					return n
				}
				look, enough := time.NewTicker(time.Millisecond), uint64(1+rng.IntN(12))
				for running := forgot < 12; running; {
					select {
					case <-look.C:
						if made() < enough {
							continue
						}
						store.Down(errors.New("the store is away"))
						job.Stop()
						store.Forget()
						store.Down(nil)
						forgot++
					case <-job.Done():
					}
					running = false
				}
				<-job.Done()
				snapshots += made()
				if done = job.Wait() == nil; !done {
					require.ErrorIs(t, job.Wait(), context.Canceled)
				}
				require.NoError(t, log.Close())
			}
			sameRows(t, w.want, lines(t, file))
			require.NotZero(t, forgot)
			require.NotZero(t, snapshots)
		})
	}
}

// A job without state leaves in the log only what its tasks would restart from: the disk does not
// grow with the input.
func TestConsumedIsTrimmed(t *testing.T) {
	for _, protocol := range []string{"fused", "txn", "aligned"} {
		t.Run(protocol, func(t *testing.T) { consumedIsTrimmed(t, protocol) })
	}
}

func consumedIsTrimmed(t *testing.T, protocol string) {
	var items []optest.Timed[int64]
	for i := range int64(900_000) {
		items = append(items, optest.At(i, i))
	}
	job := operators.NewJob("flow")
	spread := operators.Rebalance(operators.FromSource(job, "keys", optest.Items(0, items), serde.Int64), "spread")
	sums := make(map[int64]int)
	operators.ToSink(spread, "out", operators.FuncSink(func(b *operators.Batch[int64]) error {
		for _, v := range b.Items {
			sums[v]++
		}
		return nil
	}))
	plan, err := job.Plan()
	require.NoError(t, err)
	dir := t.TempDir()
	log := open(t, dir)
	require.NoError(t, tasks.Run(t.Context(), log, plan, tasks.Options{
		Protocol: protocol, Parallelism: 1, Groups: 4, CommitInterval: time.Millisecond, CommitBytes: 4 << 10, Logger: quiet,
		TrimBytes: 1, TrimInterval: time.Millisecond, Lead: 64 << 10,
	}))
	require.Len(t, sums, len(items))
	s := log.Stats()
	require.Greater(t, s.Written, uint64(6<<20), "or the test is too small")
	// Deleted files become spares first; a closed log keeps few of those.
	require.Eventually(t, func() bool {
		if log.Stats().Disk < s.Written/3 {
			return true
		}
		require.NoError(t, log.Close())
		log = open(t, dir)
		return false
	}, 3*time.Minute, 1500*time.Millisecond, "%+v", s) // longer than the janitor waits
	require.NoError(t, log.Close())
}

func TestOtherSettingsAreRefused(t *testing.T) {
	w := newWorld(4, 100, 1)
	log := mem.New(mem.Options{})
	file := filepath.Join(t.TempDir(), "out")
	o := tasks.Options{Parallelism: 1, Logger: quiet, Settings: map[string]string{"input": "a"}}
	require.NoError(t, tasks.Run(t.Context(), log, w.plan(t, file), o))
	other := o
	other.Settings = map[string]string{"input": "b"}
	other.Protocol = "marker"
	err := tasks.Run(t.Context(), log, w.plan(t, file), other)
	require.ErrorIs(t, err, tasks.ErrSettings)
	require.ErrorContains(t, err, `input was "a", is now "b"`)
	require.ErrorContains(t, err, `protocol was "fused", is now "marker"`)
	_, err = tasks.Start(t.Context(), log, w.plan(t, file), tasks.Options{Protocol: "magic"})
	require.ErrorContains(t, err, "fused, marker, txn, aligned, aligned-early, unsafe")
}

// pausable is a source whose first instance stops at a read, as a process under SIGSTOP does: with
// items in hand that it has not committed.
type pausable struct {
	operators.Source[int64]
	read            int
	opened          *atomic.Int32
	stopped, resume chan struct{}
}

func (p pausable) Open(i int) (operators.Partition[int64], error) {
	part, err := p.Source.Open(i)
	if err != nil || p.opened.Add(1) > 1 {
		return part, err
	}
	return &pausing{part, p, 0}, nil
}

type pausing struct {
	operators.Partition[int64]
	at    pausable
	reads int
}

func (p *pausing) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	if p.reads++; p.reads == p.at.read {
		close(p.at.stopped)
		<-p.at.resume
	}
	return p.Partition.Read(b, most, now)
}

// unconditional is a log without the conditions that fence zombies.
type unconditional struct{ sharedlog.Log }

func (u unconditional) Append(g sharedlog.Group) *sharedlog.Pending {
	g.If, g.Force = sharedlog.Condition{}, true
	return u.Log.Append(g)
}

// A task is stopped with input in hand (SIGSTOP), another instance takes it over and commits the
// end of the input, and then the first resumes (SIGCONT). Its commit is refused and the log shows
// each item once; without the condition it shows them twice, or, under txn, the coordinator refuses
// it.
func TestZombie(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			items, err := zombie(t, mem.New(mem.Options{}), protocol)
			require.ErrorIs(t, err, tasks.ErrFenced)
			require.Equal(t, 200, items)
		})
		t.Run(protocol+" without the condition", func(t *testing.T) {
			items, err := zombie(t, unconditional{mem.New(mem.Options{})}, protocol)
			require.NotErrorIs(t, err, tasks.ErrFenced)
			require.Equal(t, 400, items, "the zombie's commit has taken effect")
		})
	}
	for _, log := range []sharedlog.Log{mem.New(mem.Options{}), unconditional{mem.New(mem.Options{})}} {
		t.Run(fmt.Sprintf("txn %T", log), func(t *testing.T) {
			items, err := zombie(t, log, "txn")
			require.ErrorIs(t, err, tasks.ErrFenced)
			require.Equal(t, 200, items)
		})
	}
}

// zombie runs the scenario and returns how many items the log shows on the source's output, and how
// the zombie ended.
func zombie(t *testing.T, log sharedlog.Log, protocol string) (int, error) {
	var items []optest.Timed[int64]
	for i := range int64(200) {
		items = append(items, optest.At(i, i))
	}
	src := pausable{optest.Items(0, items), 30, new(atomic.Int32), make(chan struct{}), make(chan struct{})}
	job := operators.NewJob("zombie")
	spread := operators.Rebalance(operators.FromSource(job, "keys", src, serde.Int64), "spread")
	operators.ToSink(spread, "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)

	running, err := tasks.Start(t.Context(), log, plan, tasks.Options{
		Protocol: protocol, Parallelism: 1, Groups: 1, CommitInterval: time.Minute, Logger: quiet,
	})
	require.NoError(t, err)
	<-src.stopped
	second, err := running.TakeOver(t.Context(), 0, 0)
	require.NoError(t, err)
	<-second.Done()
	require.NoError(t, second.Err())
	close(src.resume)
	zombie := running.Wait()

	return itemsOn(t, log, running.Layout().Streams[0].Data), zombie
}

// itemsOn counts the items that a log holds under some tags.
func itemsOn(t *testing.T, log sharedlog.Log, data []sharedlog.Tag) int {
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: data, Until: tail})
	require.NoError(t, err)
	defer r.Close()
	n := 0
	for {
		b, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return n
		}
		require.NoError(t, err)
		for _, e := range b.Entries {
			var s envelope.Sections
			kind, err := envelope.KindOf(e.Data)
			require.NoError(t, err)
			if kind != envelope.Data {
				continue // a commit record
			}
			_, err = s.Open(e.Data)
			require.NoError(t, err)
			for sec, ok := s.Next(); ok; sec, ok = s.Next() {
				n += sec.Items
			}
		}
	}
}
