package tasks_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
)

// stepped is a source that yields as many items of a partition as the test permits.
type stepped struct {
	operators.Source[int64]
	items *atomic.Uint64
}

func (s stepped) Open(p int) (operators.Partition[int64], error) {
	part, err := s.Source.Open(p)
	return steppedPartition{part, s.items}, err
}

type steppedPartition struct {
	operators.Partition[int64]
	items *atomic.Uint64
}

func (p steppedPartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	at, _ := binary.Uvarint(p.Position(nil))
	if at >= p.items.Load() {
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
	return p.Partition.Read(b, most, now)
}

// kept returns the total length of the log's segments; files of deleted ones are spare.
func kept(t *testing.T, dir string) (sum int64) {
	names, err := filepath.Glob(filepath.Join(dir, "log", "segments", "*.seg"))
	require.NoError(t, err)
	for _, name := range names {
		if st, err := os.Stat(name); err == nil { // or it was deleted meanwhile
			sum += st.Size()
		}
	}
	return sum
}

// However long the snapshot interval is, a job with state keeps no more of the log than
// SnapshotBytes permits; without that setting it keeps all of it. The input comes in steps, each as
// fast as the job consumes it, and the next when the disk is below the bound again, so the test
// does not depend on speed.
func TestSnapshotBytes(t *testing.T) {
	const items, steps, inStep, bound = 30_000, 12, 2000, 20 << 20
	var in []optest.Timed[int64]
	for i := range int64(items) {
		in = append(in, optest.At(i, i))
	}
	text := func(i int64) string { return fmt.Sprintf("%d %1000d", i%50, i) }
	for _, c := range []struct {
		name    string
		bytes   int64
		bounded bool
	}{{"bounded", 1 << 20, true}, {"not bounded", -1, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			src := stepped{optest.Items(0, in), new(atomic.Uint64)}
			def := operators.NewJob("newest")
			texts := operators.Map(operators.FromSource(def, "numbers", src, serde.Int64), func(i *int64) string { return text(*i) })
			byKey := operators.KeyBy(texts.With(serde.String), "by-key", serde.String, func(s *string) string { k, _, _ := strings.Cut(*s, " "); return k })
			newest := operators.Reduce(byKey, func(acc, v *string) { *acc = strings.Clone(*v) })
			got := map[string]string{}
			operators.ToSink(operators.AsStream(newest), "out", operators.FuncSink(func(b *operators.Batch[operators.KV[string, string]]) error {
				for _, kv := range b.Items {
					got[strings.Clone(kv.Key)] = strings.Clone(kv.Value)
				}
				return nil
			}))
			plan, err := def.Plan()
			require.NoError(t, err)

			dir := t.TempDir()
			log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{FsyncInterval: 5 * time.Millisecond, SegmentBytes: 2 << 20, Logger: quiet})
			require.NoError(t, err)
			store, err := checkpoint.OpenPebble(filepath.Join(dir, "checkpoints"))
			require.NoError(t, err)
			job, err := tasks.Start(t.Context(), log, plan, tasks.Options{
				Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, CommitBytes: 64 << 10, Logger: quiet,
				TrimBytes: 1, TrimInterval: time.Millisecond, Checkpoints: store, SnapshotInterval: time.Hour, SnapshotBytes: c.bytes,
			})
			require.NoError(t, err)
			var most int64
			for step := range uint64(steps) {
				src.items.Add(inStep)
				require.Eventually(t, func() bool {
					var taken uint64
					for _, s := range job.Status() {
						if s.Stage == "by-key" {
							taken += s.ItemsIn
						}
					}
					return taken >= src.items.Load()
				}, time.Minute, time.Millisecond, "step %d: %+v", step+1, job.Status())
				has := kept(t, dir)
				if c.bounded {
					// A job at rest need not trim: let a little more input arrive, too little to
					// matter.
					require.Eventually(t, func() bool {
						if has = kept(t, dir); has < bound {
							return true
						}
						src.items.Add(5)
						return false
					}, time.Minute, 100*time.Millisecond, "step %d", step+1)
				}
				most = max(most, has)
			}
			src.items.Store(math.MaxUint64) // and it ends
			require.NoError(t, job.Wait())
			for i := range int64(50) {
				require.Equal(t, text(items-50+i), got[fmt.Sprint((items-50+i)%50)])
			}
			s := log.Stats()
			t.Logf("%d KiB written, %d KiB of segments at the most behind a step", s.Written>>10, most>>10)
			require.Greater(t, s.Written, uint64(2*bound), "or the test is too small")
			require.Equal(t, c.bounded, most < bound)
			require.NoError(t, store.Close())
			require.NoError(t, log.Close())
		})
	}
}
