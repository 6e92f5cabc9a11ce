package embedded_test

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// factory makes logs with so small segments and cache that every story starts new segments and
// reads from disk.
func factory(fsync embedded.Fsync) logtest.Factory {
	o := embedded.Options{Fsync: fsync, SegmentBytes: 16 << 10, CacheBytes: 4 << 10, Logger: quiet}
	dirs := map[sharedlog.Log]string{}
	open := func(t testing.TB, dir string) sharedlog.Log {
		log, err := embedded.Open(dir, o)
		require.NoError(t, err)
		dirs[log] = dir
		return log
	}
	return logtest.Factory{
		Open: func(t testing.TB) sharedlog.Log {
			dir, err := os.MkdirTemp(t.TempDir(), "log")
			require.NoError(t, err)
			return open(t, dir)
		},
		Reopen: func(t testing.TB, log sharedlog.Log) sharedlog.Log {
			require.NoError(t, log.Close())
			return open(t, dirs[log])
		},
	}
}

func TestConformance(t *testing.T) {
	for _, fsync := range []embedded.Fsync{embedded.FsyncAlways, embedded.FsyncInterval, embedded.FsyncNever} {
		t.Run(fmt.Sprint(fsync), func(t *testing.T) { logtest.Run(t, factory(fsync)) })
	}
}

// The histories run on a file system in memory: the test compares answers, and opens thousands of
// logs.
func TestRandomHistories(t *testing.T) {
	disks := map[sharedlog.Log]vfs.FS{}
	open := func(t testing.TB, disk vfs.FS) sharedlog.Log {
		log, err := embedded.Open("log", embedded.Options{FS: disk, SegmentBytes: 16 << 10, CacheBytes: 4 << 10, Logger: quiet})
		require.NoError(t, err)
		clear(disks) // only the newest is reopened
		disks[log] = disk
		return log
	}
	logtest.RunRandom(t, logtest.Factory{
		Open: func(t testing.TB) sharedlog.Log { return open(t, vfs.NewMem()) },
		Reopen: func(t testing.TB, log sharedlog.Log) sharedlog.Log {
			require.NoError(t, log.Close())
			return open(t, disks[log])
		},
	})
}

// Metadata changes alone fill the metalog but no segment: the log starts a new metalog file
// nevertheless, and deletes the old one.
func TestMetalogIsBounded(t *testing.T) {
	dir := t.TempDir()
	log, err := embedded.Open(dir, embedded.Options{Fsync: embedded.FsyncNever, Logger: quiet})
	require.NoError(t, err)
	value := func(i int) []byte { return fmt.Appendf(make([]byte, 60_000), "%d", i) }
	var old []byte
	for i := range 900 {
		c, err := log.CompareAndSet(t.Context(), "k", old, value(i))
		require.NoError(t, err)
		old = c.Value
	}
	require.Eventually(t, func() bool { return log.Stats().Disk < 45<<20 }, 2*time.Minute, time.Millisecond, "of 900 changes with 120 KB each")
	require.NoError(t, log.Close())
	log, err = embedded.Open(dir, embedded.Options{Fsync: embedded.FsyncNever, Logger: quiet})
	require.NoError(t, err)
	c, err := log.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, value(899), c.Value)
	require.NoError(t, log.Close())
}

// Whatever the number and the credit of readers that do not read: the data that waits for them
// stays below the budget, no other reader waits for them, and when they continue they miss nothing.
func TestReadersShareOneBudget(t *testing.T) {
	const budget, group, groups, readers = 1 << 20, 64 << 10, 256, 16
	log, err := embedded.Open(t.TempDir(), embedded.Options{CacheBytes: 1 << 20, ReaderBytes: budget, SegmentBytes: 4 << 20, Logger: quiet})
	require.NoError(t, err)
	var rs []sharedlog.Reader
	for range readers {
		r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"t"}, Until: groups + 1, Credit: 64 << 20})
		require.NoError(t, err)
		rs = append(rs, r)
	}
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	for i := range groups {
		data := make([]byte, group)
		data[0] = byte(i)
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"t"}, Data: data}).Wait(t.Context())
		require.NoError(t, err)
		s := log.Stats()
		require.LessOrEqual(t, s.Queued, uint64(budget+group))
		require.LessOrEqual(t, s.Cached, uint64(budget+2*group))
	}
	for _, r := range rs {
		n := 0
		for {
			b, err := r.Next(t.Context())
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			for _, e := range b.Entries {
				require.Equal(t, byte(n), e.Data[0])
				n++
			}
		}
		require.Equal(t, groups, n)
		require.NoError(t, r.Close())
	}
	require.Zero(t, log.Stats().Queued)
	require.NoError(t, log.Close())
}
