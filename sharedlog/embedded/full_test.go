package embedded_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/internal/vfs/vfstest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// fillUp uses up the rest of a disk.
func fillUp(t *testing.T, disk *vfs.Mem) {
	f, err := disk.Create("filler")
	require.NoError(t, err)
	for at := int64(0); err == nil; at += 4 << 10 {
		_, err = f.WriteAt(make([]byte, 4<<10), at)
	}
	require.True(t, vfs.Full(err), "%v", err)
	require.NoError(t, f.Close())
}

// On a full disk appends are refused first, then metadata changes; trims still pass (pitfall G9),
// and the log can be opened again, however large its metadata is.
func TestTrimsPassOnAFullDisk(t *testing.T) {
	t.Run("much metadata", func(t *testing.T) { trimsPass(t, embedded.FsyncInterval, 100) }) // keys of 64 KiB
	t.Run("always", func(t *testing.T) { trimsPass(t, embedded.FsyncAlways, 0) })
}

func trimsPass(t *testing.T, fsync embedded.Fsync, keys int) {
	disk := vfs.NewMem()
	o := embedded.Options{FS: disk, Fsync: fsync, SegmentBytes: 1 << 20, CacheBytes: 4 << 10, ReserveBytes: 10 << 20, Logger: quiet}
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	last := sharedlog.LSN(0)
	appends := func() (err error) {
		for range 100 {
			lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: make([]byte, 8<<10)}).Wait(t.Context())
			if err != nil {
				return err
			}
			last = lsn
		}
		require.Eventually(t, func() bool { // the previous segment is closed: its metalog file is gone
			files, err := disk.List("log")
			require.NoError(t, err)
			return len(slices.DeleteFunc(files, func(name string) bool { return !strings.HasPrefix(name, "meta-") })) == 1
		}, time.Minute, time.Millisecond)
		return nil
	}
	require.NoError(t, appends())
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
	disk.SetCapacity(used + 30<<20)
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

// From the start on the ballast is as large as the metadata needs, whatever the last process has
// left.
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

// The reserve is checked again within a batch: a batch that ends a segment may use up the space
// that was free when it began.
func TestReadOnlyWithinABatch(t *testing.T) {
	disk := vfs.NewMem()
	writing, release := make(chan struct{}, 1), make(chan struct{})
	o := embedded.Options{SegmentBytes: 256 << 10, CacheBytes: 4 << 10, ReserveBytes: 3 << 20, Logger: quiet}
	o.FS = vfs.Inject(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && strings.Contains(op.Path, "/segments/") && op.Len >= 8<<10 {
			select {
			case writing <- struct{}{}: // the first group of the batches below
				<-release
			default:
			}
		}
		return nil
	})
	writing <- struct{}{}
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	_, used := disk.Used()
	disk.SetCapacity(used + 3<<20 + 900<<10)
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	var all []*sharedlog.Pending
	<-writing
	for i := range 55 {
		all = append(all, w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: make([]byte, 8<<10)}))
		if i == 0 {
			require.Eventually(t, func() bool { return len(writing) == 1 }, time.Minute, time.Millisecond)
		}
	}
	close(release)
	_, err = all[10].Wait(t.Context())
	require.NoError(t, err)
	_, err = all[54].Wait(t.Context())
	require.ErrorIs(t, err, sharedlog.ErrReadOnly)
	require.NoError(t, log.Close())
}

// A process is killed when it has written a part of the ballast, and then the disk is full: the log
// can be opened nevertheless.
func TestOpenOnAFullDiskWithAPartOfTheBallast(t *testing.T) {
	disk := vfs.NewMem()
	o := embedded.Options{FS: disk, Logger: quiet}
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	_, err = sharedlog.NewWriter(log, "w", sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}}).Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, log.Close())
	vfstest.Write(t, disk, "log/BALLAST", make([]byte, 3<<20))
	_, used := disk.Used()
	disk.SetCapacity(used + 1)
	fillUp(t, disk)
	log, err = embedded.Open("log", o)
	require.NoError(t, err)
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, tail)
	require.NoError(t, log.Trim(t.Context(), "all", tail))
	require.NoError(t, log.Close())
}
