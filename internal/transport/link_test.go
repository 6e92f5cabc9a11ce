package transport

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// All connections over a link share its rate, each way, and what they carry stays as it is.
func TestLink(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	const size, conns = 100_000, 3
	of := newLink(1_000_000)
	begin := time.Now()
	var wg sync.WaitGroup
	for range conns {
		c, err := of.dial(t.Context(), l.Addr().String())
		require.NoError(t, err)
		sent := make([]byte, size)
		for i := range sent {
			sent[i] = byte(i * 7 >> 3)
		}
		wg.Go(func() {
			n, err := c.Write(sent)
			if n != size || err != nil {
				t.Errorf("wrote %d: %v", n, err)
			}
		})
		wg.Go(func() {
			got := make([]byte, size)
			if _, err := io.ReadFull(c, got); err != nil || string(got) != string(sent) {
				t.Errorf("what was read differs, or %v", err)
			}
			_ = c.Close()
		})
	}
	wg.Wait()
	took := time.Since(begin)
	require.GreaterOrEqual(t, took, 290*time.Millisecond, "300 kB at 1 MB/s")
	require.GreaterOrEqual(t, of.in.free.Sub(begin), 300*time.Millisecond)
	require.GreaterOrEqual(t, of.out.free.Sub(begin), 300*time.Millisecond)
}

// A dialer whose options have a rate connects over a link, and one without a rate does not.
func TestDialerHasALink(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // it is no server: a connection is all that the test needs
		}
	}()
	for _, rate := range []int64{0, 1_000_000} {
		made, err := NewDialer(Options{LinkRate: rate})
		require.NoError(t, err)
		_, err = made.Open(t.Context(), l.Addr().String(), "any")
		require.Error(t, err)
		d := made.(*grpcDialer)
		if require.Equal(t, rate > 0, d.link != nil); d.link != nil {
			d.link.out.mu.Lock()
			require.NotZero(t, d.link.out.free, "what a client sends first was counted")
			d.link.out.mu.Unlock()
			require.EqualValues(t, rate, d.link.in.rate)
		}
		require.NoError(t, made.Close())
	}
}

// Received grows while a message is on its way over a link.
func TestReceived(t *testing.T) {
	const size = 200_000
	srv, err := NewServer(Options{})
	require.NoError(t, err)
	srv.Handle("large", func(st Stream) error { return st.Send(&Raw{Parts: [][]byte{make([]byte, size)}}) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	d, err := NewDialer(Options{LinkRate: 1_000_000})
	require.NoError(t, err)
	for partly := false; !partly; { // again, if a busy machine hides the first half
		st, err := d.Open(t.Context(), l.Addr().String(), "large")
		require.NoError(t, err)
		before := st.Received()
		got := make(chan error, 1)
		go func() { got <- st.Recv(new(Raw)) }()
		require.Eventually(t, func() bool { return st.Received()-before >= size/4 }, 2*time.Minute, time.Millisecond)
		partly = st.Received()-before < size
		require.NoError(t, <-got)
		require.GreaterOrEqual(t, st.Received()-before, int64(size))
	}
	require.NoError(t, d.Close())
	srv.Stop()
	require.NoError(t, <-served)
}
