package checkpoint_test

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
)

// moody is a store whose writes fail now and then, before or after they took effect.
type moody struct {
	checkpoint.Store
	mood func() string
}

func (m moody) Write(ctx context.Context, ws []checkpoint.Write) error {
	mood := m.mood()
	if mood == "fails before" {
		return errors.New("the store fails")
	}
	if mood == "fails between" && len(ws) > 1 {
		if err := m.Store.Write(ctx, ws[:len(ws)/2]); err != nil {
			return err
		}
		return errors.New("the store fails")
	}
	if err := m.Store.Write(ctx, ws); err != nil {
		return err
	}
	if mood == "fails after" {
		return errors.New("the store fails")
	}
	return nil
}

// item is one change as a state table encodes it.
func item(op byte, key, value string) []byte {
	b := append(binary.AppendUvarint(nil, 0), op)
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	if op != envelope.ItemDelete {
		b = append(binary.AppendUvarint(b, uint64(len(value))), value...)
	}
	return b
}

type groupKey struct {
	group int
	key   string
}

// restored reads what a task would read that goes back to a complete checkpoint.
func restored(t require.TestingT, store checkpoint.Store, complete uint64, token sharedlog.LSN) (*checkpoint.Deltas, map[groupKey]string) {
	state := map[groupKey]string{}
	base := make([]sharedlog.LSN, 2)
	for g := range base {
		_, err := store.Begin(context.Background(), checkpoint.Group{Job: "j", Stage: "s", Group: g}, token)
		require.NoError(t, err)
		base[g], err = store.Load(context.Background(), checkpoint.Group{Job: "j", Stage: "s", Group: g}, func(es []checkpoint.Entry) error {
			for _, e := range es {
				_, key, err := envelope.SplitKey(e.Key)
				require.NoError(t, err)
				state[groupKey{g, string(key)}] = string(e.Value)
			}
			return nil
		})
		require.NoError(t, err)
	}
	d, err := checkpoint.OpenDeltas(context.Background(), store, "j", "s", 3, token, base)
	require.NoError(t, err)
	require.NoError(t, d.Restore(context.Background(), complete, func(it checkpoint.Items) error {
		for b := it.Data; len(b) > 0; {
			i, rest, err := envelope.NextItem(b)
			require.NoError(t, err)
			if k := (groupKey{it.Group, string(i.Key)}); i.Op != envelope.ItemDelete {
				state[k] = string(i.Value)
			} else {
				delete(state, k)
			}
			b = rest
		}
		return nil
	}))
	return d, state
}

// A task makes checkpoints, some of which never complete, on a store that fails now and then, and
// repeatedly goes back to the last complete one: its state equals a map's there.
func TestDeltas(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		calm := true
		store := moody{storetest.NewMem(), func() string {
			if calm {
				return ""
			}
			return rapid.SampledFrom([]string{"", "", "fails before", "fails between", "fails after"}).Draw(t, "mood")
		}}
		try := func(f func() error) {
			for calm = false; f() != nil; {
			}
			calm = true
		}
		token, complete, made := sharedlog.LSN(1), uint64(0), uint64(0)
		now, saved := map[groupKey]string{}, map[groupKey]string{}
		var at map[groupKey]string // as of made, not complete
		d, _ := restored(t, store, 0, token)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"put", "put", "complete", "complete", "told again", "fold", "fold", "crash"}).Draw(t, "step") {
			case "put":
				if made > complete {
					continue // one in progress
				}
				var items []checkpoint.Items
				for g := range 2 {
					it := checkpoint.Items{Group: g}
					touched := map[string]bool{}
					for range rapid.IntRange(0, 3).Draw(t, "changes") {
						k := groupKey{g, rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")}
						if touched[k.key] {
							continue // net changes
						}
						touched[k.key] = true
						if v := rapid.SampledFrom([]string{"", "1", "22", "333"}).Draw(t, "value"); v == "" {
							delete(now, k)
							it.Data = append(it.Data, item(envelope.ItemDelete, k.key, "")...)
						} else {
							now[k] = v
							it.Data = append(it.Data, item(envelope.ItemPut, k.key, v)...)
						}
					}
					if len(it.Data) > 0 {
						items = append(items, it)
					}
				}
				made++
				at = maps.Clone(now)
				try(func() error { return d.Put(ctx, made, items) })
			case "complete":
				if made > complete {
					complete, saved = made, at
				}
				require.NoError(t, d.Complete(complete))
			case "told again":
				require.NoError(t, d.Complete(complete))
			case "fold":
				calm = false
				_ = d.Fold(ctx) // it is retried at the next step of its kind, or after a crash
				calm = true
			case "crash":
				token++
				old := d
				d, now = restored(t, store, complete, token)
				require.Equal(t, saved, now)
				made = complete
				require.ErrorIs(t, old.Put(ctx, complete+1, nil), checkpoint.ErrFenced, "a zombie's")
			}
		}
		_, last := restored(t, store, complete, token+1)
		require.Equal(t, saved, last)
	})
}

// A store that has the state of another log, or less than it acknowledged, is refused.
func TestDeltasOfAnotherLog(t *testing.T) {
	ctx := context.Background()
	store := storetest.NewMem()
	d, _ := restored(t, store, 0, 1)
	for n := range uint64(3) {
		require.NoError(t, d.Put(ctx, n+1, []checkpoint.Items{{Group: 0, Data: item(envelope.ItemPut, "k", "v")}}))
	}
	require.False(t, d.Due())
	require.NoError(t, d.Complete(2))
	require.NoError(t, d.Fold(ctx))

	again := func(complete uint64) error {
		base := []sharedlog.LSN{2, 0}
		d, err := checkpoint.OpenDeltas(ctx, store, "j", "s", 3, 2, base)
		require.NoError(t, err)
		return d.Restore(ctx, complete, func(checkpoint.Items) error { return nil })
	}
	err := again(4)
	require.ErrorIs(t, err, checkpoint.ErrOther)
	require.ErrorContains(t, err, "up to checkpoint 3, but checkpoint 4 is complete")
	err = again(1)
	require.ErrorIs(t, err, checkpoint.ErrOther)
	require.ErrorContains(t, err, "as of checkpoint 2, the newest complete one of this log is 1")
	require.NoError(t, again(2), "checkpoint 3 was not complete")
}
