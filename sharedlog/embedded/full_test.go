package embedded_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// On a full disk appends are refused first, then changes; trims pass still (pitfall G9), and
// the log can be opened again.
func TestTrimsPassOnAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	o := embedded.Options{FS: disk, SegmentBytes: 64 << 10, CacheBytes: 4 << 10, Logger: quiet}
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	disk.SetCapacity(12 << 20)
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	last := sharedlog.LSN(0)
	for {
		lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: make([]byte, 8<<10)}).Wait(t.Context())
		if err != nil {
			require.ErrorIs(t, err, sharedlog.ErrFull)
			break
		}
		last = lsn
	}
	refused := false
	for i := 0; i < 1000 && !refused; i++ {
		_, err := log.CompareAndSet(t.Context(), fmt.Sprint("k", i), nil, make([]byte, 8<<10))
		if refused = err != nil; refused {
			require.ErrorIs(t, err, sharedlog.ErrFull)
		}
	}
	require.True(t, refused, "changes use what is kept for trims")
	require.NoError(t, log.Trim(t.Context(), "all", 2))
	require.NoError(t, log.Close())
	log, err = embedded.Open("log", o)
	require.NoError(t, err, "the disk is full")
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"all"}, From: last})
	require.NoError(t, err)
	b, err := r.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Entries, 1)
	require.NoError(t, r.Close())
	require.NoError(t, log.Close())
}
