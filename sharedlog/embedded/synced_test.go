package embedded_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/internal/vfs/vfstest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// With FsyncAlways everything that was answered was synced. One flipped bit in it, in the active
// segment or in the metalog, is an error, never the end of the log: otherwise an acknowledged
// record would be lost. The metalog's last entry is an exception: nothing shows that it was
// durable.
func TestDamageBelowWhatWasSynced(t *testing.T) {
	const groups = 6
	disk := vfs.NewMem()
	o := embedded.Options{FS: disk, Fsync: embedded.FsyncAlways, Logger: quiet}
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	meta, segment := "log/meta-00000001.log", "log/segments/00000001-00000001.seg"
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	end := map[string]int{}
	length := func(path string) int { // up to the last byte that is not zero
		return len(bytes.TrimRight(vfstest.Read(t, disk, path), "\x00"))
	}
	for i := range groups {
		end[meta] = length(meta)
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: fmt.Appendf(nil, "record %d", i)}).Wait(t.Context())
		require.NoError(t, err)
	}
	end[segment] = length(segment)
	left := disk.KillClone()
	require.NoError(t, log.Close())
	for path, end := range end {
		for at := 0; at < end; at++ {
			o.FS = left.KillClone()
			f, err := o.FS.OpenReadWrite(path)
			require.NoError(t, err)
			b := make([]byte, 1)
			_, err = f.ReadAt(b, int64(at))
			require.NoError(t, err)
			b[0] ^= 1 << (at % 8)
			_, err = f.WriteAt(b, int64(at))
			require.NoError(t, err)
			require.NoError(t, f.Close())
			log, err := embedded.Open("log", o)
			if err != nil {
				require.ErrorIs(t, err, sharedlog.ErrCorrupt, "byte %d of %s", at, path)
				continue
			}
			tail, err := log.Tail(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, groups+1, tail, "byte %d of %s: the log ends there, without an error", at, path)
			require.NoError(t, log.Close())
		}
	}
}

// Records survive a power cut after Sync, although the log itself would sync only after an hour, or
// never. Many concurrent callers need few syncs.
func TestSync(t *testing.T) {
	for _, fsync := range []embedded.Fsync{embedded.FsyncAlways, embedded.FsyncInterval, embedded.FsyncNever} {
		t.Run(string(fsync), func(t *testing.T) {
			disk := vfs.NewMem()
			o := embedded.Options{FS: disk, Fsync: fsync, FsyncInterval: time.Hour, Logger: quiet}
			log, err := embedded.Open("log", o)
			require.NoError(t, err)
			w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
			at, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: []byte("record")}).Wait(t.Context())
			require.NoError(t, err)
			if fsync != embedded.FsyncAlways {
				require.LessOrEqual(t, log.Stats().Durable, at)
			}
			before := log.Stats().Syncs
			errs := make(chan error)
			for range 20 {
				go func() { errs <- log.Sync(t.Context(), at+1) }()
			}
			for range 20 {
				require.NoError(t, <-errs)
			}
			require.Greater(t, log.Stats().Durable, at)
			require.LessOrEqual(t, log.Stats().Syncs-before, uint64(2))
			left := disk.CrashClone(rand.New(rand.NewPCG(1, 1)))
			require.NoError(t, log.Close())
			require.NoError(t, log.Sync(t.Context(), at+1), "it is durable")
			require.ErrorIs(t, log.Sync(t.Context(), at+2), sharedlog.ErrClosed)

			o.FS = left
			log, err = embedded.Open("log", o)
			require.NoError(t, err)
			tail, err := log.Tail(t.Context())
			require.NoError(t, err)
			require.Equal(t, at+1, tail)
			require.NoError(t, log.Close())
		})
	}
}
