package faulttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/sharedlog"
)

// All nodes are killed repeatedly while they delete trimmed records. Afterwards the kept records
// are readable, and reading trimmed ones is ErrTrimmed, never a silent gap.
func TestKilledWhileTrimming(t *testing.T) {
	c := proctest.Start(t, binaries, 3)
	log := c.Open()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	payload := []byte(strings.Repeat("x", 32<<10)) // eight fill a segment
	var kept []sharedlog.LSN
	last := func() sharedlog.LSN {
		e, ok, err := log.Last(ctx, "gone", 1<<62)
		require.NoError(t, err)
		require.True(t, ok)
		return e.LSN
	}
	for round := range 6 {
		// Many writers, so that each shard has some.
		for i := range 12 {
			w := sharedlog.NewWriter(log, fmt.Sprintf("w%d-%d", round, i), sharedlog.Condition{})
			for n := range 9 {
				tag := sharedlog.Tag("gone")
				if n == 8 && i == round {
					tag = "kept"
				}
				lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: payload}).Wait(ctx)
				require.NoError(t, err)
				if tag == "kept" {
					kept = append(kept, lsn)
				}
			}
		}
		newest := last()
		require.NoError(t, log.Trim(ctx, "gone", newest))
		// Each round at another moment between nothing deleted and everything deleted: the janitor runs each
		// 200 ms.
		pause := time.NewTimer(time.Duration(round*70) * time.Millisecond)
		<-pause.C
		for i := range c.Storage {
			c.Kill(fmt.Sprint("storage", i))
		}
		for i := range c.Storage {
			c.Restart(fmt.Sprint("storage", i))
		}
		require.Equal(t, newest, last(), "round %d", round)
		require.Equal(t, kept, read(ctx, t, log, "kept", newest+1), "round %d", round)
		r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"gone"}, From: 1, Until: newest + 1})
		require.NoError(t, err)
		_, err = r.Next(ctx)
		require.ErrorIs(t, err, sharedlog.ErrTrimmed, "round %d", round)
		require.NoError(t, r.Close())
	}
}

// read returns the LSNs of a tag's records below until.
func read(ctx context.Context, t *testing.T, log sharedlog.Log, tag sharedlog.Tag, until sharedlog.LSN) (all []sharedlog.LSN) {
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}, Until: until})
	require.NoError(t, err)
	defer r.Close()
	for {
		b, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		for _, e := range b.Entries {
			all = append(all, e.LSN)
		}
	}
}
