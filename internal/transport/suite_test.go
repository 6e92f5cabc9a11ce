package transport_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/porttest"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/transport/transporttest"
)

// loopback is gRPC over TCP on this machine.
type loopback struct{}

func (loopback) Serve(t *testing.T, o transport.Options, handlers map[string]transport.Handler) (string, func()) {
	srv, err := transport.NewServer(o)
	require.NoError(t, err)
	for name, h := range handlers {
		srv.Handle(name, h)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		require.NoError(t, <-served)
	})
	return ln.Addr().String(), srv.Stop
}

func (loopback) Dialer(t *testing.T, o transport.Options) transport.Dialer {
	d, err := transport.NewDialer(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func (loopback) Nowhere(t *testing.T) string { return porttest.Hold(t, 1)[0] }

func TestSuite(t *testing.T) {
	transporttest.Run(t, func(t *testing.T, test func(*testing.T, transporttest.World)) { test(t, loopback{}) })
}
