package savepoint_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/savepoint"
	"tailrace.dev/tailrace/tasks/tags"
)

func committed() checkpoint.ChangeLog { return progress.Protocols()[0].NewChangeLog() }

// A savepoint is made when every task has stopped for it, or has ended; before that Finish returns
// an error that names the task, and keeps nothing under the savepoint's name.
func TestFinishWantsAllTasks(t *testing.T) {
	for _, c := range []struct {
		name   string
		last   *envelope.Marker
		err    string
		lowest int64
	}{
		{"no marker", nil, `stage "s", task 1 has not stopped`, 0},
		{"running", &envelope.Marker{}, `stage "s", task 1 has not stopped`, 0},
		{"stopped for another", &envelope.Marker{Drained: 6}, `stage "s", task 1 has not stopped`, 0},
		{"stopped", &envelope.Marker{Drained: 7, Watermark: 30}, "", 30},
		{"stopped further on", &envelope.Marker{Drained: 7, Watermark: 50}, "", 40},
		{"ended", &envelope.Marker{Ended: true, Watermark: 30}, "", 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, store := mem.New(mem.Options{}), storetest.NewMem()
			owner := sharedlog.Condition{Key: tags.InstanceKey("j", "s", 0), Value: []byte("1")}
			_, err := log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
			require.NoError(t, err)
			w := sharedlog.NewWriter(log, "w", owner)
			for i, m := range []*envelope.Marker{{Drained: 7, Watermark: 40}, c.last} {
				if m == nil {
					continue
				}
				m.Job, m.Task, m.Instance, m.Commit = "j", uint32(i), 1, 1
				_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Task("j", "s", i)}, Data: m.Append(nil)}).Wait(t.Context())
				require.NoError(t, err)
			}
			m, _, err := savepoint.New(t.Context(), log, store, savepoint.Job{
				Name: "j", ID: "j", Committed: committed,
				Stages: []savepoint.JobStage{{Name: "s", Tasks: 2, Changes: []sharedlog.Tag{"changes/0", "changes/1"}, Owner: []int{0, 1}}},
			}, "p", 7)
			require.NoError(t, err)
			made, err := m.Finish(t.Context())
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				_, err = savepoint.Find(t.Context(), store, "p")
				require.ErrorIs(t, err, savepoint.ErrNone)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.lowest, made.Stages[0].Watermark, "the lowest of its tasks'")
			_, err = savepoint.Find(t.Context(), store, "p")
			require.NoError(t, err)
		})
	}
}

// A savepoint starts while a task has not committed anything yet: what the task then takes
// from the savepoint that its job begins from is in the store only, and is copied when the
// task has stopped.
func TestCopyBeforeTheFirstMarker(t *testing.T) {
	log, store := mem.New(mem.Options{}), storetest.NewMem()
	m, _, err := savepoint.New(t.Context(), log, store, savepoint.Job{
		Name: "j", ID: "j", Committed: committed,
		Stages: []savepoint.JobStage{{Name: "s", Tasks: 1, Changes: []sharedlog.Tag{"changes/0"}, Owner: []int{0}}},
	}, "p", 7)
	require.NoError(t, err)
	require.NoError(t, m.Copy(t.Context()))

	adopted := checkpoint.Entry{Key: []byte("key"), Value: []byte("value")}
	group := checkpoint.Group{Job: "j", Stage: "s"}
	_, err = store.Begin(t.Context(), group, 1)
	require.NoError(t, err)
	require.NoError(t, store.Write(t.Context(), []checkpoint.Write{{Group: group, Token: 1, To: sharedlog.First, Entries: []checkpoint.Entry{adopted}}}))
	owner := sharedlog.Condition{Key: tags.InstanceKey("j", "s", 0), Value: []byte("1")}
	_, err = log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
	require.NoError(t, err)
	mark := envelope.Marker{Job: "j", Instance: 1, Commit: 1, Drained: 7}
	_, err = sharedlog.NewWriter(log, "w", owner).Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Task("j", "s", 0)}, Data: mark.Append(nil)}).Wait(t.Context())
	require.NoError(t, err)

	made, err := m.Finish(t.Context())
	require.NoError(t, err)
	var got []checkpoint.Entry
	_, err = store.Load(t.Context(), made.Group("s", 0), func(es []checkpoint.Entry) error {
		got = append(got, es...)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []checkpoint.Entry{adopted}, got)
}

// trimmed is a log that runs after each time that it has told its tail.
type trimmed struct {
	sharedlog.Log
	after func()
}

func (l trimmed) Tail(ctx context.Context) (sharedlog.LSN, error) {
	at, err := l.Log.Tail(ctx)
	l.after()
	return at, err
}

// A task commits, and its older markers are trimmed, between the tail that a copy goes up to and the
// question whether the task has a marker.
func TestCopyWhileMarkersAreTrimmed(t *testing.T) {
	log, store := mem.New(mem.Options{}), storetest.NewMem()
	owner := sharedlog.Condition{Key: tags.InstanceKey("j", "s", 0), Value: []byte("1")}
	_, err := log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "w", owner)
	mark := envelope.Marker{Job: "j", Instance: 1}
	commit := func() {
		mark.Commit++
		tag := tags.Task("j", "s", 0)
		at, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: mark.Append(nil)}).Wait(t.Context())
		require.NoError(t, err)
		require.NoError(t, log.Trim(t.Context(), tag, at))
	}
	commit()
	m, _, err := savepoint.New(t.Context(), trimmed{log, commit}, store, savepoint.Job{
		Name: "j", ID: "j", Committed: committed,
		Stages: []savepoint.JobStage{{Name: "s", Tasks: 1, Changes: []sharedlog.Tag{"changes/0"}, Owner: []int{0}}},
	}, "p", 7)
	require.NoError(t, err)
	require.NoError(t, m.Copy(t.Context()))
}
