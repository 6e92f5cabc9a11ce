package savepoint_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/savepoint"
	"tailrace.dev/tailrace/tasks/tags"
)

// held is the store of a process that stands still before one of its calls, while something else happens, and ends some calls later.
type held struct {
	checkpoint.Store
	calls, at, ends int
	then            func()
}

var errEnded = errors.New("the process has ended")

func (h *held) call() error {
	if h.calls++; h.calls == h.at {
		h.then()
	}
	if h.calls >= h.ends {
		return errEnded
	}
	return nil
}

func (h *held) Begin(ctx context.Context, g checkpoint.Group, token sharedlog.LSN) (sharedlog.LSN, error) {
	if err := h.call(); err != nil {
		return 0, err
	}
	return h.Store.Begin(ctx, g, token)
}

func (h *held) Clear(ctx context.Context, g checkpoint.Group, token sharedlog.LSN) error {
	if err := h.call(); err != nil {
		return err
	}
	return h.Store.Clear(ctx, g, token)
}

func (h *held) Write(ctx context.Context, ws []checkpoint.Write) error {
	if err := h.call(); err != nil {
		return err
	}
	return h.Store.Write(ctx, ws)
}

func (h *held) Load(ctx context.Context, g checkpoint.Group, f func([]checkpoint.Entry) error) (sharedlog.LSN, error) {
	if err := h.call(); err != nil {
		return 0, err
	}
	return h.Store.Load(ctx, g, f)
}

func (h *held) Drop(ctx context.Context, job string) error {
	if err := h.call(); err != nil {
		return err
	}
	return h.Store.Drop(ctx, job)
}

// A manager stands still before one of the calls by which it makes a savepoint, whichever, and is deposed. The next one completes the
// savepoint, of newer snapshots, from which a key is gone. What the first one does until it knows that changes nothing of it.
func TestDeposedMaker(t *testing.T) {
	for at := 1; ; at++ {
		for ends := at + 1; ; ends++ {
			met, ended := deposedMaker(t, at, ends)
			if !met {
				require.Greater(t, at, 5)
				return
			}
			if !ended {
				break
			}
		}
	}
}

// deposedMaker reports whether the first maker has met the call at which it is held, and the one at which it ends.
func deposedMaker(t *testing.T, at, ends int) (met, ended bool) {
	what := fmt.Sprintf("held before call %d, ended at %d", at, ends)
	log, store := mem.New(mem.Options{}), storetest.NewMem()
	snapshot := func(token sharedlog.LSN, es ...checkpoint.Entry) {
		for g := range 2 {
			group := checkpoint.Group{Job: "j", Stage: "s", Group: g}
			from, err := store.Begin(t.Context(), group, token)
			require.NoError(t, err)
			require.NoError(t, store.Write(t.Context(), []checkpoint.Write{{Group: group, Token: token, From: from, To: from + 1, Entries: es}}))
		}
	}
	value := []byte("v")
	snapshot(1, checkpoint.Entry{Key: []byte("gone"), Value: value}, checkpoint.Entry{Key: []byte("kept"), Value: value})
	owner := sharedlog.Condition{Key: tags.InstanceKey("j", "s", 0), Value: []byte("1")}
	_, err := log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
	require.NoError(t, err)
	mark := envelope.Marker{Job: "j", Instance: 1, Commit: 1, Drained: 7}
	_, err = sharedlog.NewWriter(log, "w", owner).Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Task("j", "s", 0)}, Data: mark.Append(nil)}).Wait(t.Context())
	require.NoError(t, err)
	job := savepoint.Job{
		Name: "j", ID: "j", Committed: committed,
		Stages: []savepoint.JobStage{{Name: "s", Tasks: 1, Changes: []sharedlog.Tag{"changes/0", "changes/1"}, Owner: []int{0, 0}}},
	}
	make := func(store checkpoint.Store) (*savepoint.Manifest, error) {
		m, have, err := savepoint.New(t.Context(), log, store, job, "p", 7)
		if err != nil || have != nil {
			return have, err
		}
		if err := m.Copy(t.Context()); err != nil {
			return nil, err
		}
		return m.Finish(t.Context())
	}
	var made *savepoint.Manifest
	_, err = make(&held{Store: store, at: at, ends: ends, then: func() {
		snapshot(2, checkpoint.Entry{Key: []byte("gone")})
		var err error
		made, err = make(store)
		require.NoError(t, err, what)
	}})
	if made == nil {
		require.NoError(t, err, what)
		return false, false
	}
	ended = errors.Is(err, errEnded)
	have, err := savepoint.Find(t.Context(), store, "p")
	require.NoError(t, err, what)
	require.Equal(t, made, have, what)
	all, err := savepoint.List(t.Context(), store)
	require.NoError(t, err)
	require.Len(t, all, 1, what)
	for g := range 2 {
		var keys []string
		at, err := store.Load(t.Context(), have.Group("s", g), func(es []checkpoint.Entry) error {
			for _, e := range es {
				keys = append(keys, string(e.Key))
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, have.Whole(&have.Stages[0], g, at), what)
		require.Equal(t, []string{"kept"}, keys, what)
	}
	return true, ended
}

// A savepoint that was made may have been deleted, and another one made under its name, before its maker asks whether the store has kept
// it: the other one stays.
func TestConfirmLeavesAnother(t *testing.T) {
	store := settling{storetest.NewMem()}
	former := made(t, store)
	require.NoError(t, savepoint.Delete(t.Context(), store, "one"))
	_ = made(t, store)
	former.Number--
	require.ErrorIs(t, savepoint.Confirm(t.Context(), store, former), savepoint.ErrLost)
	_, err := savepoint.Find(t.Context(), store, "one")
	require.NoError(t, err)
}
