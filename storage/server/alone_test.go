package server

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
)

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *lockedBuffer) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(p)
}

func (h *lockedBuffer) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

// A node that reaches none of its sequencers logs a warning with the addresses that it tried and
// the errors.
func TestNoSequencerIsSaid(t *testing.T) {
	d, err := transport.NewDialer(transport.Options{})
	require.NoError(t, err)
	defer d.Close()
	var logged lockedBuffer
	n, err := Start(Options{
		Addr: "127.0.0.1:9", Sequencers: []string{"127.0.0.1:1"}, Dir: t.TempDir(), Dialer: d,
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	require.Eventually(t, func() bool { return logged.String() != "" }, 2*time.Minute, 10*time.Millisecond)
	require.Contains(t, logged.String(), "no sequencer responds; check their addresses (--sequencers), and that they are running")
	require.Contains(t, logged.String(), "connection refused")
}
