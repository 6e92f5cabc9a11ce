package transport_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
)

// A refused client gets the reason, also if the refusal arrives before its first message was sent.
func TestHelloSaysWhy(t *testing.T) {
	srv, err := transport.NewServer(transport.Options{Cluster: "ours"})
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	defer func() {
		srv.Stop()
		require.NoError(t, <-served)
	}()
	d, err := transport.NewDialer(transport.Options{Cluster: "theirs"})
	require.NoError(t, err)
	defer d.Close()
	for _, late := range []bool{false, true} {
		st, err := d.Open(t.Context(), ln.Addr().String(), "any")
		require.NoError(t, err)
		if late {
			require.Eventually(t, func() bool { return st.Send(new(transport.Raw)) != nil }, 2*time.Minute, time.Millisecond)
		}
		err = st.Hello(new(transport.Raw))
		if err == nil { // the message was sent before the refusal arrived
			require.False(t, late)
			err = st.Recv(new(transport.Raw))
		}
		require.ErrorContains(t, err, `"ours"`)
		require.ErrorContains(t, err, `"theirs"`)
	}
}
