package operators_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// TestProcess: a function batches the items of a key and emits their sum at an event timer 10 ms
// after the first; all sums come out once, in the same groups as in a plain loop over items sorted
// by time, when items come in order.
func TestProcess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 60)
		for i := 1; i < len(items); i++ {
			items[i].Time = max(items[i].Time, items[i-1].Time)
		}
		var want []string
		type open struct{ until, sum int64 }
		sums := map[string]*open{}
		for i, x := range items {
			// A read of up to five items moves the watermark behind the last of them only; oneByOne
			// makes it move behind each.
			if i > 0 {
				for k, o := range sums {
					if o.until <= items[i-1].Time {
						want = append(want, fmt.Sprintf("%s %d %d", k, o.until, o.sum))
						delete(sums, k)
					}
				}
			}
			o := sums[x.Value.Key]
			if o == nil {
				o = &open{until: x.Time + 10}
				sums[x.Value.Key] = o
			}
			o.sum += x.Value.N
		}
		for k, o := range sums {
			want = append(want, fmt.Sprintf("%s %d %d", k, o.until, o.sum))
		}

		job := operators.NewJob("process")
		src := operators.FromSource(job, "src", oneByOne{optest.Items(0, items)}, hitSerde)
		ks := operators.Process(operators.KeyBy(src, "k", serde.String, byKey), "batcher",
			func(c *operators.Context[string, string]) operators.Handler[hit] {
				sum := operators.NewValue(c, "sum", serde.Int64)
				seen := operators.NewList(c, "seen", hitSerde)
				return operators.Handler[hit]{
					Item: func(h *hit) {
						if sum.Get() == nil {
							c.SetEventTimer(c.Time() + 10)
							c.SetEventTimer(c.Time() + 5)
							c.DeleteEventTimer(c.Time() + 5)
						}
						*sum.Upsert() += h.N
						seen.Add(c.Time(), h)
					},
					Timers: operators.Timers{OnEvent: func(at int64) {
						var check int64
						for _, e := range seen.All() {
							check += e.Value.N
							if e.Value.Key != c.Key() {
								check = 1 << 40
							}
						}
						if check != *sum.Get() {
							c.Emit("the list and the sum differ", at)
						}
						c.Emit(fmt.Sprintf("%s %d %d", c.Key(), at, *sum.Get()), at)
						sum.Delete()
						seen.Delete()
					}},
				}
			})
		o := drawOptions(t)
		o.CommitEvery = 1
		got, _ := runRows(t, job, values(ks), o)
		require.ElementsMatch(t, want, got)
	})
}

// TestWallTimers: a timer of the wall clock fires, once, also after crashes.
func TestWallTimers(t *testing.T) {
	var items []optest.Timed[hit]
	for i := range 200 {
		items = append(items, optest.At(int64(i), hit{fmt.Sprint("k", i%7), 1}))
	}
	for seed := range uint64(20) {
		job := operators.NewJob("wall")
		src := operators.FromSource(job, "src", optest.Items(0, items), hitSerde)
		ks := operators.Process(operators.KeyBy(src, "k", serde.String, byKey), "once",
			func(c *operators.Context[string, string]) operators.Handler[hit] {
				seen := operators.NewValue(c, "seen", serde.Bool)
				return operators.Handler[hit]{
					Item: func(*hit) {
						if seen.Get() == nil {
							*seen.Upsert() = true
							c.SetWallTimer(c.Now() + 3)
						}
					},
					Timers: operators.Timers{OnWall: func(int64) { c.Emit(c.Key(), c.Time()) }},
				}
			})
		got, _ := runRows(t, job, values(ks), optest.Options{Seed: seed, CrashEvery: 15, Parallelism: 2})
		require.Equal(t, []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6"}, got)
	}
}

// TestFileSink: with crashes at any moment the file holds each row once, and
// nothing of a longer file that was there before.
func TestFileSink(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 60)
		path := filepath.Join(dir, "out")
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("old\n", 1000)), 0o666))
		job := operators.NewJob("file")
		src := operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde)
		var want strings.Builder
		for i := range items {
			fmt.Fprintf(&want, "%s %d\n", items[i].Value.Key, items[i].Value.N)
		}
		operators.ToSink(src, "out", operators.FileSink(path, func(dst []byte, h *hit) []byte {
			return fmt.Appendf(dst, "%s %d\n", h.Key, h.N)
		}, false))
		plan, err := job.Plan()
		require.NoError(t, err)
		o := drawOptions(t)
		_, err = optest.Run(plan, o)
		require.NoError(t, err)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want.String(), string(got))
	})
}

// A path that is not a regular file is refused before anything is written.
func TestFileSinkRegular(t *testing.T) {
	_, err := operators.FileSink(os.DevNull, func(dst []byte, s *string) []byte { return append(dst, *s...) }, false).Open(0, 1)
	require.ErrorContains(t, err, os.DevNull+" is no regular file")
}

func TestFileSinkRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.WriteFile(path, []byte("12345"), 0o666))
	sink := operators.FileSink(path, func(dst []byte, s *string) []byte { return append(dst, *s...) }, true)
	w, err := sink.Open(0, 1)
	require.NoError(t, err)
	defer w.Close()
	err = w.Restore([]byte{6})
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "has 5 bytes, but 6 were written")
	require.NoError(t, w.Restore([]byte{3}))
	require.NoError(t, w.(operators.Fenced).Fence(operators.Fence{}))
	require.NoError(t, w.Write(&operators.Batch[string]{Items: []string{"x"}, Times: []int64{0}}))
	pos, err := w.Position(nil)
	require.NoError(t, err)
	require.Equal(t, []byte{4}, pos)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "123x", string(got))
	_, err = sink.Open(0, 2)
	require.ErrorContains(t, err, "one task")
}

// TestWriterSink: a restarted task leaves out what this process has written.
func TestWriterSink(t *testing.T) {
	var out strings.Builder
	sink := operators.WriterSink(&out, func(dst []byte, s *string) []byte { return append(dst, *s...) })
	one := func(s string) *operators.Batch[string] {
		return &operators.Batch[string]{Items: []string{s}, Times: []int64{0}}
	}
	a, err := sink.Open(0, 1)
	require.NoError(t, err)
	require.NoError(t, a.Write(one("abc")))
	pos, err := a.Position(nil)
	require.NoError(t, err)
	require.NoError(t, a.Write(one("def")))
	_, err = a.Position(nil) // written, but not committed
	require.NoError(t, err)
	b, err := sink.Open(0, 1)
	require.NoError(t, err)
	require.NoError(t, b.Restore(pos))
	require.NoError(t, b.Write(one("defghi")))
	_, err = b.Position(nil)
	require.NoError(t, err)
	require.Equal(t, "abcdefghi", out.String())
}
