package host_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

// The disk of one node of three is full for a while: appends of writers with their home there fail
// with a clear error and nothing is lost; other writers do not notice; when there is room again
// everything continues, and the node gets what it missed.
func TestFullDisk(t *testing.T) {
	c := newLocal(t, 1, 3)
	require.NoError(t, c.open(t).Close())
	c.end("storage1")
	var full atomic.Bool
	c.nodeOn(1, vfs.Inject(vfs.OS, func(op vfs.Op) error {
		if full.Load() && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	}))
	c.primaries(t, 3) // otherwise no writer would have its home at the new process
	l := c.open(t)
	defer l.Close()
	type writer struct {
		*sharedlog.Writer
		n    int
		full bool
	}
	var writers []*writer
	for i := range 40 { // by chance none of a dozen may have its home at the new process
		writers = append(writers, &writer{Writer: sharedlog.NewWriter(l, fmt.Sprint("w", i), sharedlog.Condition{})})
	}
	acked := map[string]sharedlog.LSN{}
	round := func() (refused int) {
		for _, w := range writers {
			if w.full {
				w.Writer, w.full, w.n = sharedlog.NewWriter(l, w.Name()+"+", sharedlog.Condition{}), false, 0
			}
			id := fmt.Sprintf("%s.%d", w.Name(), w.n)
			lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte(id)}).Wait(t.Context())
			if sharedlog.KindOf(err) == sharedlog.KindFull {
				w.full = true
				refused++
				continue
			}
			require.NoError(t, err)
			acked[id] = lsn
			w.n++
		}
		return refused
	}
	require.Zero(t, round())
	full.Store(true)
	require.Eventually(t, func() bool { return round() > 0 }, 2*time.Minute, time.Millisecond, "no node has met the full disk")
	for range 20 {
		require.Less(t, round(), len(writers), "the other nodes' disks are not full")
	}
	full.Store(false)
	require.Eventually(t, func() bool { return round() == 0 }, 2*time.Minute, time.Millisecond)
	for range 20 {
		require.Zero(t, round())
	}
	tail, err := l.Tail(t.Context())
	require.NoError(t, err)
	rows, err := logtest.Read(t.Context(), l, 1, tail, "x")
	require.NoError(t, err)
	require.Len(t, rows, len(acked))
	for id, lsn := range acked {
		require.Contains(t, rows, fmt.Sprintf("%d:%s", lsn, id))
	}
}
