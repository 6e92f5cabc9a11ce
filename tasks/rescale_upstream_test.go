package tasks_test

import (
	"errors"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/envelope"
	single "tailrace.dev/tailrace/tasks/records"
)

// Tasks upstream of a stage that is rescaled, or balanced, take no part in it: they append the same bytes for each key
// group, in as many commits, as if nothing had moved, and wait for nothing but their next item. (Only
// which groups share a record follows their owners.)
func TestUpstreamIsUndisturbed(t *testing.T) {
	type appended struct {
		sections map[int]string // by key group
		commits  uint64
		stalled  float64 // ms
	}
	run := func(t *testing.T, protocol string, change func(t *testing.T, job *tasks.Job)) (a appended) {
		file := filepath.Join(t.TempDir(), "out")
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now().UnixMilli()
			plan, want := working(t, 7500, func(k int) int64 { return begin + int64(k)*4 }, 3*time.Millisecond, file)
			log := mem.New(mem.Options{})
			job, err := tasks.Start(t.Context(), log, plan, tasks.Options{Parallelism: 2, Groups: 16, Logger: quiet, Protocol: protocol})
			require.NoError(t, err)
			source := func() tasks.Status {
				for _, s := range job.Status() {
					if s.Stage == "keys" && s.ItemsIn > 0 {
						return s
					}
				}
				return tasks.Status{}
			}
			time.Sleep(2 * time.Second)
			slept := source().SleptMS
			require.NotZero(t, slept)
			change(t, job)
			time.Sleep(time.Until(time.UnixMilli(begin + 25_000)))
			a.stalled = 23_000 - (source().SleptMS - slept)
			require.NoError(t, job.Wait())
			sameRows(t, want, lines(t, file))

			l := job.Layout()
			require.Equal(t, "keys", l.Plan.Stages[l.Streams[0].Producer].Name)
			tail, err := log.Tail(t.Context())
			require.NoError(t, err)
			marker, _, err := single.LastMarker(t.Context(), log, l.Job, "keys", 0, tail)
			require.NoError(t, err)
			a.commits, a.sections = marker.Commit, map[int]string{}
			r, err := log.NewReader(sharedlog.ReaderOptions{Tags: l.Streams[0].Data, Until: tail})
			require.NoError(t, err)
			defer r.Close()
			for {
				b, err := r.Next(t.Context())
				if errors.Is(err, io.EOF) {
					return
				}
				require.NoError(t, err)
				for _, e := range b.Entries {
					var s envelope.Sections
					_, err = s.Open(e.Data)
					require.NoError(t, err)
					for sec, ok := s.Next(); ok; sec, ok = s.Next() {
						a.sections[sec.Group] += string(sec.Data)
					}
				}
			}
		})
		return a
	}
	changes := map[string]func(t *testing.T, job *tasks.Job){
		"rescaled": func(t *testing.T, job *tasks.Job) {
			for _, n := range []int{4, 1, 3} {
				time.Sleep(5 * time.Second)
				done, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: n, Batch: 2})
				require.NoError(t, err)
				require.NotZero(t, done.GroupsMoved)
			}
		},
		"balanced": func(t *testing.T, job *tasks.Job) {
			for _, shares := range [][]float64{{3, 1}, {1, 3}, {1, 1}} {
				require.NoError(t, job.Balance(tasks.Balance{Stage: "by-key", Dispatch: "weight", When: tasks.BalanceWhen{Every: 5000}, Shares: shares}))
				time.Sleep(7 * time.Second)
				require.NotZero(t, job.Balanced()[0].MovedGroups)
			}
		},
	}
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			still := run(t, protocol, func(*testing.T, *tasks.Job) {})
			require.Len(t, still.sections, 16)
			require.InDelta(t, 0, still.stalled, 1e-6)
			for how, change := range changes {
				changed := run(t, protocol, change)
				require.Equal(t, still.sections, changed.sections, how)
				require.Equal(t, still.commits, changed.commits, how)
				require.InDelta(t, 0, changed.stalled, 1e-6, "%s: ms for which the producer did not wait for its next item", how)
			}
		})
	}
}
