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

// heard is a log that may be read while it is written.
type heard struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(p)
}

func (h *heard) String() string {
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
	var words heard
	n, err := Start(Options{
		Addr: "127.0.0.1:9", Sequencers: []string{"127.0.0.1:1"}, Dir: t.TempDir(), Dialer: d,
		Logger: slog.New(slog.NewTextHandler(&words, nil)),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	require.Eventually(t, func() bool { return words.String() != "" }, 2*time.Minute, 10*time.Millisecond)
	require.Contains(t, words.String(), "no sequencer responds; check their addresses (--sequencers), and that they are running")
	require.Contains(t, words.String(), "connection refused")
}
