package tasks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// haltingSink is a sink of which one instance stops, as a stopped process would: it has its
// position, and has done nothing yet.
type haltingSink struct {
	operators.Sink[int64]
	halts          int32 // number of that instance
	opened         atomic.Int32
	halted, resume chan struct{}
}

func (s *haltingSink) Open(task, of int) (operators.SinkWriter[int64], error) {
	w, err := s.Sink.Open(task, of)
	return &haltingWriter{w, s, s.opened.Add(1) == s.halts}, err
}

type haltingWriter struct {
	operators.SinkWriter[int64]
	s     *haltingSink
	halts bool
}

func (w *haltingWriter) Fence(f operators.Fence) error {
	if w.halts {
		close(w.s.halted)
		<-w.s.resume
	}
	return w.SinkWriter.(operators.Fenced).Fence(f)
}

// An instance of a file sink is stopped while it starts, the next one takes over and commits, and
// then the first resumes. The file holds what the log says, and ends where the input ended.
func TestZombieFileSink(t *testing.T) {
	const n = 8_000
	var items []optest.Timed[int64]
	for i := range int64(n) {
		items = append(items, optest.At(i, i))
	}
	for _, protocol := range []string{"fused", "marker", "txn", "aligned"} {
		for _, halts := range []int32{1, 2} { // the instance that starts from nothing, or a later one
			t.Run(fmt.Sprintf("%s/%d", protocol, halts), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "out")
				log := mem.New(mem.Options{})
				sink := &haltingSink{Sink: operators.FileSink(file, func(dst []byte, v *int64) []byte {
					return append(strconv.AppendInt(dst, *v, 10), '\n')
				}, false), halts: halts, halted: make(chan struct{}), resume: make(chan struct{})}
				job := operators.NewJob("z")
				operators.ToSink(operators.FromSource(job, "in", slow{optest.Items(0, items), 20}, serde.Int64), "out", sink)
				plan, err := job.Plan()
				require.NoError(t, err)
				o := tasks.Options{
					Protocol: protocol, Parallelism: 1, CommitInterval: time.Millisecond, CommitBytes: 2 << 10, FlushInterval: time.Millisecond,
					Checkpoints: storetest.NewMem(), Logger: quiet,
				}
				spec, err := tasks.Describe(plan, o)
				require.NoError(t, err)
				id, err := tasks.Register(t.Context(), log, nil, spec)
				require.NoError(t, err)
				begin := func(stage int) *tasks.Handle { // as on a worker of its own
					executor, err := tasks.Join(t.Context(), log, spec, id, plan, o)
					require.NoError(t, err)
					var of tasks.Attempt
					if spec.Together(stage) {
						of = tasks.Attempt{Number: 1, Nonce: 1}
					}
					r, err := executor.Begin(t.Context(), stage, 0, of)
					require.NoError(t, err)
					return r
				}
				stage := slices.IndexFunc(plan.Stages, func(s exec.StageSpec) bool { return s.Sink })
				source := begin(1 - stage)
				if halts > 1 {
					one := begin(stage)
					written := func() bool { return strings.Contains(string(readFile(file)), "\n300\n") }
					require.Eventually(t, written, time.Minute, time.Millisecond)
					defer func() { <-one.Done() }()
				}
				zombie := begin(stage)
				<-sink.halted
				next := begin(stage)
				written := func() bool { return strings.Contains(string(readFile(file)), "\n3000\n") }
				require.Eventually(t, written, time.Minute, time.Millisecond)
				require.Eventually(t, func() bool { return next.Status().Commits > 2 }, time.Minute, time.Millisecond)
				close(sink.resume)
				<-zombie.Done()
				require.ErrorIs(t, zombie.Err(), tasks.ErrFenced)
				<-source.Done()
				require.NoError(t, source.Err())
				<-next.Done()
				require.NoError(t, next.Err())
				var want []byte
				for i := range int64(n) {
					want = append(strconv.AppendInt(want, i, 10), '\n')
				}
				got := readFile(file)
				require.True(t, string(want) == string(got), "%d bytes, %d of them NUL, %d expected", len(got), strings.Count(string(got), "\x00"), len(want))
			})
		}
	}
}

// readFile returns nothing if the file does not exist.
func readFile(file string) []byte {
	b, _ := os.ReadFile(file)
	return b
}
