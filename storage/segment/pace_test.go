package segment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// The bytes read per second are bounded, and waiting callers are notified of the end.
func TestPacer(t *testing.T) {
	m := vfs.NewMem()
	m.SetCapacity(700 << 30)
	quit := make(chan struct{})
	require.EqualValues(t, (700<<30)/(7*24*3600), NewPacer(m, "d", 0, quit).rate, "a week for a full disk")
	m.SetCapacity(1 << 30)
	require.EqualValues(t, 1<<20, NewPacer(m, "d", 0, quit).rate, "but not less than that")
	p := NewPacer(m, "d", 1<<20, quit)
	began := time.Now()
	for range 10 {
		require.NoError(t, p.Wait(20<<10))
	}
	require.GreaterOrEqual(t, time.Since(began), 190*time.Millisecond)
	close(quit)
	require.ErrorIs(t, p.Wait(1<<30), sharedlog.ErrClosed)
}
