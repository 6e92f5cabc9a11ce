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
			refuses(t, err)
			break
		}
		last = lsn
	}
	refused := false
	var was []byte
	for i := 0; i < 2000 && !refused; i++ { // one key, so that a snapshot of the metadata is small
		value := fmt.Appendf(make([]byte, 8<<10), "%d", i)
		_, err := log.CompareAndSet(t.Context(), "k", was, value)
		was = value
		if refused = err != nil; refused {
			refuses(t, err)
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

// refuses checks the error of what a full disk does not take: it says that it is full, or
// that it is read-only until the ballast has been made again.
func refuses(t *testing.T, err error) {
	t.Helper()
	require.Contains(t, []sharedlog.Kind{sharedlog.KindFull, sharedlog.KindReadOnly}, sharedlog.KindOf(err), "%v", err)
}
