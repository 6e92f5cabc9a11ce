package host_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

// shared is a disk that other programs write to, too.
type shared struct {
	vfs.FS
	low *atomic.Bool
}

func (s shared) Free(string) (free, total int64, err error) {
	if s.low.Load() {
		return 1 << 20, 100 << 30, nil
	}
	return 50 << 30, 100 << 30, nil
}

// The disks of all storage nodes are nearly full, and all of them restart. Clients can connect,
// appends are refused with the remedy, and the remedy, a trim, works.
func TestAllReadOnlyRestarted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var low atomic.Bool
	c := newLocalAs(t, 1, 3, func(c *local) { c.disk = func(int) vfs.FS { return shared{vfs.OS, &low} } })
	l := c.open(t)
	writers := 0
	add := func() error {
		writers++
		_, err := sharedlog.NewWriter(l, fmt.Sprint("w", writers), sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}}).Wait(ctx)
		return err
	}
	require.NoError(t, add())
	low.Store(true)
	require.NoError(t, l.Close())
	for i := range c.storage {
		c.end(fmt.Sprint("storage", i))
	}
	for i := range c.storage {
		c.node(i)
	}
	l = c.open(t)
	defer l.Close()
	err := add()
	require.ErrorIs(t, err, sharedlog.ErrReadOnly)
	require.ErrorContains(t, err, "make room on it, or trim the log")
	tail, err := l.Tail(ctx)
	require.NoError(t, err)
	rows, err := logtest.Read(ctx, l, 1, tail, "x")
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.NoError(t, l.Trim(ctx, "x", tail))
	_, err = logtest.Read(ctx, l, 1, tail, "x")
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
	low.Store(false)
	require.Eventually(t, func() bool { return add() == nil }, 2*time.Minute, 20*time.Millisecond)
}
