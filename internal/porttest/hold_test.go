package porttest_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/porttest"
)

// No port is given out twice, not even when many are held: neither by Hold nor, for port 0, by
// the kernel.
func TestHeldPortsDiffer(t *testing.T) {
	held := map[string]bool{}
	for range 1000 {
		held[porttest.Hold(t, 1)[0]] = true
	}
	require.Equal(t, 1000, len(held))
	for range 1000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		require.False(t, held[l.Addr().String()], "%s is held", l.Addr())
	}
}

// A server can listen at a held address, end, and listen again; no other process listens there at the same
// time. In between, a connection is refused.
func TestServersListenAtHeldPorts(t *testing.T) {
	addr := porttest.Hold(t, 1)[0]
	for range 2 {
		_, err := net.Dial("tcp", addr)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		l, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		_, err = net.Listen("tcp", addr)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		in, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, in.Close()) // this end of the connection remains in TIME_WAIT
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
}

// A held port is free again when the test ends.
func TestPortsAreReleased(t *testing.T) {
	var addr string
	t.Run("holds", func(t *testing.T) { addr = porttest.Hold(t, 1)[0] })
	require.NoError(t, exclusive(addr))
	require.ErrorIs(t, exclusive(porttest.Hold(t, 1)[0]), syscall.EADDRINUSE)
}

// exclusive listens at an address without SO_REUSEADDR, and ends.
func exclusive(addr string) error {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		control := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		})
		return errors.Join(control, err)
	}}
	l, err := c.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}
