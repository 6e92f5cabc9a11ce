package embedded_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// fillUp has somebody else take the rest of a disk.
func fillUp(t *testing.T, disk *vfs.Mem) {
	f, err := disk.Create("filler")
	require.NoError(t, err)
	for at := int64(0); err == nil; at += 4 << 10 {
		_, err = f.WriteAt(make([]byte, 4<<10), at)
	}
	require.True(t, vfs.Full(err), "%v", err)
	require.NoError(t, f.Close())
}

// On a full disk appends are refused first, then changes; trims pass still (pitfall G9), and
// the log can be opened again, however large its metadata is.
func TestTrimsPassOnAFullDisk(t *testing.T) {
	for _, fsync := range []embedded.Fsync{embedded.FsyncInterval, embedded.FsyncAlways} {
		for _, c := range []struct {
			name string
			keys int // of 64 KiB
		}{{"little metadata", 0}, {"much metadata", 100}} {
			t.Run(fmt.Sprint(fsync, ", ", c.name), func(t *testing.T) { trimsPass(t, fsync, c.keys) })
		}
	}
}

func trimsPass(t *testing.T, fsync embedded.Fsync, keys int) {
	disk := vfs.NewMem()
	o := embedded.Options{FS: disk, Fsync: fsync, SegmentBytes: 256 << 10, CacheBytes: 4 << 10, ReserveBytes: 3 << 20, Logger: quiet}
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	last := sharedlog.LSN(0)
	appends := func() (err error) {
		for range 50 {
			lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: make([]byte, 8<<10)}).Wait(t.Context())
			if err != nil {
				return err
			}
			last = lsn
		}
		return nil
	}
	require.NoError(t, appends())
	require.Eventually(t, func() bool { // a segment is closed
		size, err := disk.Stat("log/BALLAST")
		return err == nil && size >= 4<<20
	}, time.Minute, time.Millisecond)
	kept := map[string]int{}
	changes := func(size, n int) (err error) {
		for i := 0; i < n && err == nil; i++ {
			key := fmt.Sprint("k", size, ".", i)
			if _, err = log.CompareAndSet(t.Context(), key, nil, make([]byte, size)); err == nil {
				kept[key] = size
			}
		}
		return err
	}
	require.NoError(t, changes(64<<10, keys))
	size, err := disk.Stat("log/BALLAST")
	require.NoError(t, err)
	require.Greater(t, size, int64(keys)*(64<<10)+(3<<20), "it has grown with the metadata")

	_, used := disk.Used()
	disk.SetCapacity(used + 16<<20)
	for err = nil; err == nil; {
		err = appends()
	}
	require.ErrorIs(t, err, sharedlog.ErrReadOnly)
	require.ErrorIs(t, changes(8<<10, 2000), sharedlog.ErrFull, "changes leave room")
	fillUp(t, disk)
	require.ErrorIs(t, changes(512, 20_000), sharedlog.ErrFull, "changes use what is kept for trims")
	for range 100 {
		require.NoError(t, log.Trim(t.Context(), "all", 2))
	}
	for range 2 {
		require.NoError(t, log.Close())
		log, err = embedded.Open("log", o)
		require.NoError(t, err, "the disk is full")
	}
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"all"}, From: last})
	require.NoError(t, err)
	b, err := r.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Entries, 1)
	require.NoError(t, r.Close())
	for key, size := range kept {
		c, err := log.Get(t.Context(), key)
		require.NoError(t, err)
		require.True(t, len(c.Value) == size, "%s has %d bytes", key, len(c.Value))
	}
	require.NoError(t, disk.Remove("filler"))
	require.NoError(t, log.Trim(t.Context(), "all", last))
	require.Eventually(t, func() bool {
		w = sharedlog.NewWriter(log, "w2", sharedlog.Condition{})
		return appends() == nil
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, log.Close())
}

// The ballast is as large as the metadata needs from the start on, whatever the last process
// has left.
func TestBallastAfterAStart(t *testing.T) {
	disk := vfs.NewMem()
	o := embedded.Options{FS: disk, CacheBytes: 4 << 10, Logger: quiet}
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	_, err = sharedlog.NewWriter(log, "w", sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}}).Wait(t.Context())
	require.NoError(t, err)
	for i := range 100 {
		_, err := log.CompareAndSet(t.Context(), fmt.Sprint("k", i), nil, make([]byte, 64<<10))
		require.NoError(t, err)
	}
	require.NoError(t, log.Close())
	for _, left := range []int64{0, 4 << 20, 40 << 20} {
		f, err := disk.Create("log/BALLAST")
		require.NoError(t, err)
		require.NoError(t, f.Truncate(left))
		require.NoError(t, f.Close())
		log, err = embedded.Open("log", o)
		require.NoError(t, err)
		size := func() int64 {
			size, err := disk.Stat("log/BALLAST")
			require.NoError(t, err)
			return size
		}
		require.Greater(t, size(), int64(9<<20))
		require.Eventually(t, func() bool { return size() < 12<<20 }, time.Minute, time.Millisecond, "it is no larger than that")
		require.NoError(t, log.Close())
	}
}
