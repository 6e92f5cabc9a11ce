package fencing

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
)

// Two processes start an instance of a task at the same time: the slower one gets the number behind
// the faster one and fences it. A process whose reply was lost has the number that it asked for.
func TestTakeOver(t *testing.T) {
	log := mem.New(mem.Options{})
	_, err := log.CompareAndSet(t.Context(), "job", nil, []byte("a manager"))
	require.NoError(t, err)
	raced := false
	slow := before{log, func() {
		if raced {
			return
		}
		raced = true
		number, _, _, err := TakeOver(t.Context(), log, "job", "k", 4)
		require.NoError(t, err)
		require.EqualValues(t, 1, number)
	}}
	number, condition, place, err := TakeOver(t.Context(), slow, "job", "k", 5)
	require.NoError(t, err)
	require.EqualValues(t, 2, number)
	now, err := log.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, now.Value, condition.Value)
	require.Equal(t, now.Place, place)

	number, condition, place, err = TakeOver(t.Context(), deaf{log, true}, "job", "k", 6)
	require.NoError(t, err)
	require.EqualValues(t, 3, number)
	now, err = log.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, now.Value, condition.Value)
	require.Equal(t, now.Place, place)
}

// The job is deleted before an instance sets its key: nothing is left of it.
func TestTakeOverOfDeleted(t *testing.T) {
	log := mem.New(mem.Options{})
	_, _, _, err := TakeOver(t.Context(), log, "job", "k", 4)
	require.ErrorIs(t, err, ErrDeleted)
	now, err := log.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Empty(t, now.Value)
}

// before is a log that calls a function before its metadata changes.
type before struct {
	sharedlog.Log
	change func()
}

func (b before) CompareAndSet(ctx context.Context, key string, old, new []byte) (sharedlog.Change, error) {
	b.change()
	return b.Log.CompareAndSet(ctx, key, old, new)
}

// deaf is a log that loses the replies to changes.
type deaf struct {
	sharedlog.Log
	on bool
}

func (d deaf) CompareAndSet(ctx context.Context, key string, old, new []byte) (sharedlog.Change, error) {
	c, err := d.Log.CompareAndSet(ctx, key, old, new)
	if err == nil && d.on {
		err = sharedlog.ErrUnknown
	}
	return c, err
}
