package savepoint_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/savepoint"
	"tailrace.dev/tailrace/tasks/tags"
)

// settling is a store that may lose what it has acknowledged, for a moment.
type settling struct{ *storetest.Mem }

func (settling) LossWindow() time.Duration { return time.Millisecond }

// made returns a savepoint of a job of one task with two key groups, which has stopped.
func made(t *testing.T, store checkpoint.Store) *savepoint.Manifest {
	log := mem.New(mem.Options{})
	instance := sharedlog.Condition{Key: tags.InstanceKey("job", "stage", 0), Value: []byte("1")} // the tag is the job's own
	_, err := log.CompareAndSet(t.Context(), instance.Key, nil, instance.Value)
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "task", instance)
	marker := envelope.Marker{Job: "job", Drained: 7, Positions: []envelope.Position{{Name: "in", Value: []byte("3")}}}
	_, err = w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Task("job", "stage", 0)}, Data: marker.Append(nil)}).Wait(t.Context())
	require.NoError(t, err)
	j := savepoint.Job{
		Name: "job", ID: "job", Stages: []savepoint.JobStage{{Name: "stage", Tasks: 1, Changes: []sharedlog.Tag{"c0", "c1"}, Owner: []int{0, 0}}},
		Committed: func() checkpoint.ChangeLog { return atOnce{} },
	}
	maker, _, err := savepoint.New(t.Context(), log, store, j, "one", 7)
	require.NoError(t, err)
	man, err := maker.Finish(t.Context())
	require.NoError(t, err)
	return man
}

// atOnce: every change counts where it is.
type atOnce struct{}

func (atOnce) Take(e *sharedlog.Entry) ([]sharedlog.Entry, error) { return []sharedlog.Entry{*e}, nil }
func (atOnce) Low() sharedlog.LSN                                 { return ^sharedlog.LSN(0) }

// A savepoint that the store has kept is found after Confirm. If the store has lost it, or one of
// its key groups, Confirm fails and leaves nothing of it.
func TestConfirm(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(t *testing.T, store settling, m *savepoint.Manifest)
		lost bool
	}{
		{"kept", func(*testing.T, settling, *savepoint.Manifest) {}, false},
		{"all", func(_ *testing.T, store settling, _ *savepoint.Manifest) { store.Forget() }, true},
		{"a key group", func(t *testing.T, store settling, m *savepoint.Manifest) { back(t, store, m.Group("stage", 1), m.At) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := settling{storetest.NewMem()}
			m := made(t, store)
			require.Equal(t, []sharedlog.LSN{m.At, m.At}, m.Stages[0].At)
			c.lose(t, store, m)
			err := savepoint.Confirm(t.Context(), store, m)
			all, lerr := savepoint.List(t.Context(), store)
			require.NoError(t, lerr)
			if !c.lost {
				require.NoError(t, err)
				require.Len(t, all, 1)
				return
			}
			require.ErrorIs(t, err, savepoint.ErrLost)
			require.Empty(t, all)
		})
	}
}

// A caller that stops waiting gets an error that says that it is unknown whether the store keeps
// the savepoint.
func TestConfirmEnds(t *testing.T) {
	store := settling{storetest.NewMem()}
	m := made(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, savepoint.Confirm(ctx, store, m), context.Canceled)
}

// back resets a store to its position before the last write of a group.
func back(t *testing.T, store checkpoint.Store, g checkpoint.Group, token sharedlog.LSN) {
	at, err := store.Begin(t.Context(), g, token)
	require.NoError(t, err)
	require.NoError(t, store.Write(t.Context(), []checkpoint.Write{{Group: g, Token: token, From: at, To: sharedlog.First}}))
}
