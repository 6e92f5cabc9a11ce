package retry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What fails is repeated less and less often, until it succeeds or the caller ends it.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		p := Policy{Clock: time.Now, Logger: slog.New(slog.NewTextHandler(&said, nil))}
		began, away, tries := time.Now(), errors.New("away"), 0
		require.NoError(t, p.Do(t.Context(), "it is away", func(context.Context) error {
			if tries++; tries == 4 {
				return nil
			}
			return away
		}))
		require.Equal(t, (50+100+200)*time.Millisecond, time.Since(began))
		require.Equal(t, 1, strings.Count(said.String(), "it is away"))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tries = 0
		said.Reset()
		require.ErrorIs(t, p.Do(ctx, "it is away", func(context.Context) error {
			tries++
			return away
		}), context.DeadlineExceeded)
		require.Less(t, tries, 25)
		require.Greater(t, tries, 15, "at least one in five seconds")
		require.InDelta(t, 5, strings.Count(said.String(), "it is away"), 1, "in each ten seconds")
	})
}
