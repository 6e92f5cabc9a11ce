package host_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

// changing is a Dialer that flips a bit of the records that some nodes send to readers, like a node
// with faulty memory.
type changing struct {
	transport.Dialer

	mu    sync.Mutex
	first string // the node that was the first to send records
	all   bool   // every node changes records, not only that one
	hits  int
}

func (d *changing) Open(ctx context.Context, addr, name string) (transport.ClientStream, error) {
	st, err := d.Dialer.Open(ctx, addr, name)
	if err != nil || name != "storage/session" {
		return st, err
	}
	return &changed{st, d, addr}, nil
}

type changed struct {
	transport.ClientStream
	d    *changing
	addr string
}

func (s *changed) Recv(m any) error {
	if err := s.ClientStream.Recv(m); err != nil {
		return err
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	raw := m.(*transport.Raw)
	i := bytes.Index(raw.Bytes, []byte("appended"))
	if i < 0 {
		return nil
	}
	if s.d.first == "" {
		s.d.first = s.addr
	}
	if s.d.all || s.addr == s.d.first {
		raw.Bytes = bytes.Clone(raw.Bytes)
		raw.Bytes[i] ^= 4
		s.d.hits++
	}
	return nil
}

// A node sends readers records that differ in one bit from what was appended: readers return what
// was appended, from other replicas, and the reader's process logs the node. When all nodes do so,
// the reader ends with ErrCorrupt.
func TestNodeChangesRecords(t *testing.T) {
	c := newLocal(t, 1, 3)
	tcp, err := transport.NewDialer(transport.Options{Cluster: "test"})
	require.NoError(t, err)
	defer tcp.Close()
	d := &changing{Dialer: tcp}
	var logged syncBuffer
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, err := client.Connect(ctx, client.Options{Sequencers: c.sequencers, Dialer: d, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	require.NoError(t, err)
	defer l.Close()
	w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
	const n = 50
	data := func(i int) string { return fmt.Sprintf("record %d as it was appended", i) }
	for i := range n {
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte(data(i))}).Wait(ctx)
		require.NoError(t, err)
	}
	r, err := l.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}})
	require.NoError(t, err)
	defer r.Close()
	for i := 0; i < n; {
		b, err := r.Next(ctx)
		require.NoError(t, err)
		for _, e := range b.Entries {
			require.Equal(t, data(i), string(e.Data))
			i++
		}
	}
	d.mu.Lock()
	require.Positive(t, d.hits)
	first := d.first
	d.all = true
	d.mu.Unlock()
	require.Contains(t, logged.String(), "node="+first)

	r, err = l.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}})
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Next(ctx)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, "does not fit the checksum")
}

// syncBuffer collects log output.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
