package aligned

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// An attempt admits every task that names it, in any process, and no attempt of the same or a lower
// number.
func TestAttempts(t *testing.T) {
	log := mem.New(mem.Options{})
	try := func(number, nonce uint64) (*attempt, error) {
		return enter(t.Context(), log, "j", runtime.Attempt{Number: number, Nonce: nonce}, nil)
	}
	newest := func() uint64 {
		n, err := NewestAttempt(t.Context(), log, "j")
		require.NoError(t, err)
		return n
	}
	require.Zero(t, newest())
	first, err := try(3, 7)
	require.NoError(t, err)
	require.Nil(t, first.last)
	again, err := try(3, 7)
	require.NoError(t, err)
	require.Equal(t, first, again)
	for _, other := range []runtime.Attempt{{Number: 3, Nonce: 8}, {Number: 2, Nonce: 7}} {
		_, err = try(other.Number, other.Nonce)
		require.ErrorIs(t, err, runtime.ErrFenced)
		require.ErrorContains(t, err, "the job has attempt 3")
	}

	// The newest checkpoint below the next attempt is the last complete one; a checkpoint of an
	// attempt that is over has no effect.
	old := sharedlog.NewWriter(log, "old", first.condition)
	complete := func(n uint64) error {
		c := envelope.Checkpoint{Job: "j", Number: n, Attempt: 3}
		_, err := old.Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Checkpoints("j")}, Data: c.Append(nil)}).Wait(t.Context())
		return err
	}
	require.NoError(t, complete(1))
	// One more completes at the last moment, after the tail of the log was read.
	second, err := enter(t.Context(), before{log, func() { require.NoError(t, complete(2)) }}, "j", runtime.Attempt{Number: 0, Nonce: 9}, nil)
	require.NoError(t, err)
	require.Equal(t, runtime.Attempt{Number: 4, Nonce: 9}, second.Attempt)
	require.Equal(t, uint64(4), newest())
	require.ErrorIs(t, complete(3), sharedlog.ErrConditionFailed)
	require.Equal(t, uint64(2), second.last.Number)
	joined, err := try(4, 9)
	require.NoError(t, err)
	require.Equal(t, second, joined)
	require.LessOrEqual(t, first.from, second.from)

	// A value that another build has left is not an attempt.
	_, err = log.CompareAndSet(t.Context(), tags.AttemptKey("k"), nil, []byte("0123456789abcdef"))
	require.NoError(t, err)
	_, err = enter(t.Context(), log, "k", runtime.Attempt{Number: 1, Nonce: 1}, nil)
	require.ErrorContains(t, err, "24 bytes, this has 16")
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

// Many tasks enter one attempt at once, and now and then the reply to one is lost: all of them
// enter the same attempt.
func TestAttemptBegunByMany(t *testing.T) {
	log := mem.New(mem.Options{})
	for number := uint64(1); number <= 50; number++ {
		all := make([]*attempt, 8)
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() {
				// The order continues meanwhile, so each task may see another tail.
				w := sharedlog.NewWriter(log, fmt.Sprint(number, i), sharedlog.Condition{})
				_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}}).Wait(t.Context())
				if err == nil {
					all[i], err = enter(t.Context(), deaf{log, i%2 == 0}, "j", runtime.Attempt{Number: number, Nonce: 5}, nil)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, a := range all {
			require.Equal(t, all[0], a)
		}
	}
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

// A task's token for the store is higher in a later attempt, even if nothing was appended between
// the two: otherwise the store would accept both.
func TestTokensRise(t *testing.T) {
	log := mem.New(mem.Options{})
	token := func(number uint64) sharedlog.LSN {
		a, err := enter(t.Context(), log, "j", runtime.Attempt{Number: number, Nonce: 1}, nil)
		require.NoError(t, err)
		job := &commits{cfg: &runtime.Config{Log: log, Layout: &layout.Layout{Job: "j"}}}
		m := &participant{job: job, attempt: a, spec: &exec.StageSpec{Name: "count"}}
		m.acks = m.writer("/acks")
		require.NoError(t, m.announce(t.Context()))
		return m.joined
	}
	require.Less(t, token(1), token(2))
}
