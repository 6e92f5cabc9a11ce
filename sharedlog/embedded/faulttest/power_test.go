package faulttest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// The power fails at a random moment: what had not been synced is lost, per file
// and in any combination. With always nothing acknowledged is lost; with interval
// and never the order ends somewhere, and what is below is whole and as it was.
// Then the log goes on, and the power fails again.
func TestPowerCut(t *testing.T) {
	for _, fsync := range []embedded.Fsync{embedded.FsyncAlways, embedded.FsyncInterval, embedded.FsyncNever} {
		t.Run(string(fsync), func(t *testing.T) {
			shortened, warned := 0, 0
			for seed := range uint64(60) {
				s, w := powerCuts(t, fsync, seed)
				if s {
					shortened++
				}
				if w {
					warned++
				}
			}
			t.Logf("%d of 60 lost something, %d with a warning", shortened, warned)
			if fsync == embedded.FsyncNever {
				// Without a warning: the end of the metalog itself was lost, and
				// nothing is left that could tell.
				require.NotZero(t, warned, "no cut ever took anything: the test is too tame")
			}
		})
	}
}

func powerCuts(t *testing.T, fsync embedded.Fsync, seed uint64) (shortened, warned bool) {
	rng := rand.New(rand.NewPCG(seed, 4))
	disk := vfs.NewMem()
	var text bytes.Buffer
	o := options(fsync)
	o.FsyncInterval = time.Millisecond
	o.SegmentBytes = 8 << 10
	o.Logger = slog.New(slog.NewTextHandler(&text, nil))
	before := map[sharedlog.LSN]string{} // as of the last opening
	durable := sharedlog.First           // as the log said when the power was cut
	for round := range 3 {
		o.FS = disk
		log, err := embedded.Open("log", o)
		require.NoError(t, err, "fsync %s, seed %d, round %d", fsync, seed, round)
		all := records(t, log)
		for lsn, rec := range all {
			require.Equal(t, before[lsn], rec, "fsync %s, seed %d, round %d: LSN %d", fsync, seed, round, lsn)
		}
		whole(t, all)
		tail, err := log.Tail(context.Background())
		require.NoError(t, err)
		require.Equal(t, int(tail-1), len(all), "fsync %s, seed %d: a hole below the tail", fsync, seed)
		require.GreaterOrEqual(t, tail, durable, "fsync %s, seed %d, round %d: the log said that less could be lost", fsync, seed, round)
		if len(all) < len(before) {
			shortened = true
			require.NotEqual(t, embedded.FsyncAlways, fsync, "seed %d, round %d: %d acknowledged records lost", seed, round, len(before)-len(all))
			warned = warned || strings.Contains(text.String(), "a power cut took the end of the log")
		}
		before = all

		w := sharedlog.NewWriter(log, fmt.Sprint("w", round), sharedlog.Condition{})
		n := 1 + rng.IntN(120)
		for i := range n {
			size := 1 + rng.IntN(4)
			lsn, err := w.Append(groupOf(w.Name(), i, size)...).Wait(context.Background())
			require.NoError(t, err)
			for j, r := range groupOf(w.Name(), i, size) {
				before[lsn+sharedlog.LSN(j)] = string(r.Data)
			}
		}
		durable = log.Stats().Durable
		disk = disk.CrashClone(rng)
		require.NoError(t, log.Close())
	}
	return shortened, warned
}

// The disk is full for a while: appends are refused with ErrFull, trims pass, and
// with room again everything goes on, with nothing lost and no LSN used twice.
func TestFullDisk(t *testing.T) {
	full := false
	disk := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if full && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	})
	o := options(embedded.FsyncNever)
	o.FS = disk
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	ctx := t.Context()
	w := sharedlog.NewWriter(log, "a", sharedlog.Condition{})
	for i := range 10 {
		_, err := w.Append(groupOf("a", i, 2)...).Wait(ctx)
		require.NoError(t, err)
	}
	full = true
	refused := sharedlog.NewWriter(log, "b", sharedlog.Condition{})
	for range 3 {
		_, err = sharedlog.NewWriter(log, "b", sharedlog.Condition{}).Append(groupOf("b", 0, 3)...).Wait(ctx)
		require.ErrorIs(t, err, sharedlog.ErrFull)
	}
	full = false
	_, err = refused.Append(groupOf("b", 0, 3)...).Wait(ctx)
	require.NoError(t, err, "the number was given back")
	_, err = w.Append(groupOf("a", 10, 2)...).Wait(ctx)
	require.NoError(t, err)
	all := records(t, log)
	require.Len(t, all, 25)
	whole(t, all)
	require.NoError(t, log.Close())
	log, err = embedded.Open("log", o)
	require.NoError(t, err)
	require.Equal(t, all, records(t, log))
	require.NoError(t, log.Close())
}
