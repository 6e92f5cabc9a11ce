package tasks_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	"tailrace.dev/tailrace/tasks/savepoint"
)

// upTo copies what the job had written to its file when the savepoint was made.
func upTo(t *testing.T, m *savepoint.Manifest, from, to string) {
	st, err := m.Stage("out")
	require.NoError(t, err)
	ps, err := st.Task(0, 1)
	require.NoError(t, err)
	require.Len(t, ps, 1)
	off, _ := binary.Uvarint(ps[0].Value)
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, b[:off], 0o644))
}

// gate is a source that waits after some of its items until it is opened.
type gate struct {
	operators.Source[int64]
	open  *atomic.Bool
	limit uint64
}

func (g gate) Open(p int) (operators.Partition[int64], error) {
	part, err := g.Source.Open(p)
	return gatePartition{part, g}, err
}

type gatePartition struct {
	operators.Partition[int64]
	gate gate
}

// following is a source whose partition 1 has nothing more until partition 0 has ended.
type following struct {
	operators.Source[int64]
	ended *atomic.Bool
}

func (f following) Open(p int) (operators.Partition[int64], error) {
	part, err := f.Source.Open(p)
	return followingPartition{part, p, f.ended}, err
}

type followingPartition struct {
	operators.Partition[int64]
	number int
	ended  *atomic.Bool
}

func (p followingPartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	if p.number == 1 && !p.ended.Load() {
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
	st, err := p.Partition.Read(b, most, now)
	if p.number == 0 && st.State == operators.Ended {
		p.ended.Store(true)
	}
	return st, err
}

func (p gatePartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	if at, _ := binary.Uvarint(p.Position(nil)); at >= p.gate.limit && !p.gate.open.Load() {
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
	return p.Partition.Read(b, most, now)
}

// A savepoint is made at some moment. The same rows come from the job that continues, and from
// another job that starts from the savepoint and appends to the rows so far, with another
// parallelism, another protocol, in another log, killed and restarted.
func TestSavepoint(t *testing.T) {
	w := newWorld(3, 60_000, 3)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 9))
			dir := t.TempDir()
			file, copied := filepath.Join(dir, "out"), filepath.Join(dir, "copied")
			store := storetest.NewMem()
			log, err := embedded.Open(dir, embedded.Options{FsyncInterval: time.Millisecond, SegmentBytes: 1 << 20, Logger: quiet})
			require.NoError(t, err)
			defer log.Close()
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), uint64(2000 + rng.IntN(15_000))}
			protocols := []string{"fused", "marker", "txn"}
			o := tasks.Options{
				Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, CommitBytes: 4 << 10, Logger: quiet, Protocol: protocols[seed%3],
				TrimBytes: 1, TrimInterval: time.Millisecond, Checkpoints: store, SnapshotInterval: time.Duration(1+rng.IntN(5)) * time.Millisecond,
			}
			job, err := tasks.Start(t.Context(), log, counts(t, file, g), o)
			require.NoError(t, err)
			look := time.NewTicker(time.Millisecond)
			until := func(items uint64) {
				for n := uint64(0); n < items; <-look.C {
					n = 0
					for _, s := range job.Status() {
						if s.Stage == "keys" {
							n += s.ItemsIn
						}
					}
					select {
					case <-job.Done():
						return
					default:
					}
				}
			}
			until(uint64(rng.IntN(2000)))
			stop := rng.IntN(3) == 0
			m, err := job.Savepoint(t.Context(), "one", stop)
			require.NoError(t, err)
			g.open.Store(true)
			upTo(t, m, file, copied)
			if stop {
				require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
				job, err = tasks.Start(t.Context(), log, w.plan(t, file), o) // and it continues nevertheless
				require.NoError(t, err)
			}
			require.NoError(t, job.Wait())
			sameRows(t, w.want, lines(t, file))
			require.Less(t, len(lines(t, copied)), len(w.want), "there was nothing left to do")

			all, err := savepoint.List(t.Context(), store)
			require.NoError(t, err)
			require.Len(t, all, 1)
			require.NotZero(t, all[0].Entries)

			o.Name, o.From, o.Parallelism, o.Protocol = "second", "one", 1+rng.IntN(4), protocols[rng.IntN(3)]
			second := sharedlog.Log(log)
			if rng.IntN(2) == 1 {
				second = mem.New(mem.Options{})
			}
			crashes := rng.IntN(3)
			for {
				job, err = tasks.Start(t.Context(), second, w.plan(t, copied), o)
				require.NoError(t, err)
				if crashes--; crashes < 0 {
					break
				}
				until(uint64(rng.IntN(20_000)))
				job.Stop()
				// Restoring waits while the store is unavailable for a moment.
				store.Down(errors.New("away"))
				time.AfterFunc(20*time.Millisecond, func() { store.Down(nil) })
			}
			require.NoError(t, job.Wait())
			sameRows(t, w.want, lines(t, copied))
			for _, s := range job.Status() {
				require.Zero(t, s.Late)
			}
		})
	}
}

// Tasks of one source have watermarks of their own, and begin from a savepoint with them: a late item of the one
// that is ahead changes a window that has closed there, within the lateness, as if there were no savepoint, and does
// not count behind it. So it is if one task takes what both had, and has the watermark of the other.
func TestSavepointBesideSources(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn"} {
		for _, lateness := range []time.Duration{time.Second, 0} {
			for _, parallelism := range []int{2, 1} {
				t.Run(fmt.Sprintf("%s, lateness %v, then %d tasks", protocol, lateness, parallelism), func(t *testing.T) {
					besideSources(t, protocol, lateness, parallelism)
				})
			}
		}
	}
}

func besideSources(t *testing.T, protocol string, lateness time.Duration, parallelism int) {
	want := []string{"0 1 1", "0 101 3", "100 1 1", "200 1 1", "300 101 1", "40 1 1"}
	if lateness > 0 {
		want = slices.Insert(want, 1, "0 1 2")
	}
	dir := t.TempDir()
	file, copied := filepath.Join(dir, "out"), filepath.Join(dir, "copied")
	items := optest.Items(0,
		[]optest.Timed[int64]{optest.At(0, int64(1)), optest.At(50, int64(1)), optest.At(100, int64(1)), optest.At(5, int64(1)), optest.At(200, int64(1))},
		[]optest.Timed[int64]{optest.At(0, int64(101)), optest.At(5, int64(101)), optest.At(10, int64(101)), optest.At(300, int64(101))},
	)
	plan := func(src operators.Source[int64], file string) *operators.Plan {
		job := operators.NewJob("beside")
		keys := operators.KeyAhead(operators.FromSource(job, "keys", src, serde.Int64), serde.Int64, self, func(k *int64) int { return int(*k / 100) })
		counts := operators.CountWindows(keys, operators.Tumbling(20*time.Millisecond), operators.Lateness(lateness))
		operators.ToSink(counts, "out", operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
			return fmt.Appendf(dst, "%d %d %d\n", c.Value.Start, c.Key, c.Value.Value)
		}, false))
		p, err := job.Plan()
		require.NoError(t, err)
		return p
	}
	g := gate{items, new(atomic.Bool), 3}
	o := tasks.Options{Parallelism: 2, Groups: 2, CommitInterval: time.Millisecond, Logger: quiet, Protocol: protocol, Checkpoints: storetest.NewMem()}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan(g, file), o)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s := job.Status()
		return s[0].Watermark == 100 && s[1].Watermark == 10
	}, time.Minute, time.Millisecond)
	m, err := job.Savepoint(t.Context(), "one", false)
	require.NoError(t, err)
	upTo(t, m, file, copied)
	g.open.Store(true)
	require.NoError(t, job.Wait())
	sameRows(t, want, lines(t, file))

	o.Name, o.From, o.Parallelism = "second", "one", parallelism
	job, err = tasks.Start(t.Context(), mem.New(mem.Options{}), plan(following{items, new(atomic.Bool)}, copied), o)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	sameRows(t, want, lines(t, copied))
}

// What cannot be done is refused with a reason, and leaves the job as it was.
func TestSavepointRefused(t *testing.T) {
	w := newWorld(4, 20_000, 2)
	dir := t.TempDir()
	store := storetest.NewMem()
	log := mem.New(mem.Options{})
	o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Settings: map[string]string{"input": "a"}}
	job, err := tasks.Start(t.Context(), log, w.plan(t, filepath.Join(dir, "out")), o)
	require.NoError(t, err)
	_, err = job.Savepoint(t.Context(), "one", false)
	require.ErrorContains(t, err, "--checkpoints")
	require.NoError(t, job.Wait())

	o.Name, o.Checkpoints, o.From = "b", store, "none"
	_, err = tasks.Start(t.Context(), log, w.plan(t, filepath.Join(dir, "b")), o)
	require.ErrorIs(t, err, savepoint.ErrNone)
	o.From, o.Protocol = "", "unsafe"
	job, err = tasks.Start(t.Context(), log, w.plan(t, filepath.Join(dir, "b")), o)
	require.NoError(t, err, "a name that was mistyped has left nothing")
	_, err = job.Savepoint(t.Context(), "one", false)
	require.ErrorContains(t, err, "unsafe")
	require.NoError(t, job.Wait())

	o.Name, o.Protocol = "c", "fused"
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 1000}
	job, err = tasks.Start(t.Context(), log, counts(t, filepath.Join(dir, "c"), g), o)
	require.NoError(t, err)
	_, err = job.Savepoint(t.Context(), "a/b", false)
	require.ErrorContains(t, err, "'/'")
	_, err = job.Savepoint(t.Context(), "one", false)
	require.NoError(t, err)
	_, err = job.Savepoint(t.Context(), "one", false)
	require.ErrorIs(t, err, savepoint.ErrExists)
	g.open.Store(true)
	require.NoError(t, job.Wait())
	_, err = job.Savepoint(t.Context(), "late", false)
	require.ErrorIs(t, err, tasks.ErrEnded)

	o.Name, o.From, o.Groups = "d", "one", 16
	_, err = tasks.Start(t.Context(), log, w.plan(t, filepath.Join(dir, "d")), o)
	require.ErrorContains(t, err, "8 key groups")
	o.Groups, o.Settings = 8, map[string]string{"input": "b"}
	_, err = tasks.Start(t.Context(), log, w.plan(t, filepath.Join(dir, "d")), o)
	require.ErrorIs(t, err, tasks.ErrSettings)

	// The store has lost a part of a key group.
	m, err := savepoint.Find(t.Context(), store, "one")
	require.NoError(t, err)
	lost := m.Group("by-key", 3)
	at, err := store.Begin(t.Context(), lost, m.At)
	require.NoError(t, err)
	require.NoError(t, store.Write(t.Context(), []checkpoint.Write{{Group: lost, Token: m.At, From: at, To: sharedlog.First}}))
	o.Settings = map[string]string{"input": "a"}
	// The sink finds all that the savepoint says it has written, so only the lost group ends the job.
	job, err = tasks.Start(t.Context(), log, w.plan(t, filepath.Join(dir, "c")), o)
	require.NoError(t, err)
	require.ErrorIs(t, job.Wait(), savepoint.ErrLost)

	require.NoError(t, savepoint.Delete(t.Context(), store, "one"))
	require.ErrorIs(t, savepoint.Delete(t.Context(), store, "one"), savepoint.ErrNone)
	all, err := savepoint.List(t.Context(), store)
	require.NoError(t, err)
	require.Empty(t, all)
}
