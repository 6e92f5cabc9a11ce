package proctest

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process's socket is found by both of its ports: a socket that waits for its end on the same
// local port, to another place, has no owner and is listed beside it.
func TestOwner(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()

	// The local port of a connection that is over, in TIME_WAIT, ...
	first, err := dialFrom(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, other.Addr().String())
	require.NoError(t, err)
	local := first.LocalAddr().(*net.TCPAddr)
	accepted, err := other.Accept()
	require.NoError(t, err)
	require.NoError(t, first.Close())
	_, err = accepted.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, accepted.Close())

	// ... is used again.
	out, err := dialFrom(local, l.Addr().String())
	require.NoError(t, err)
	defer out.Close()
	in, err := l.Accept()
	require.NoError(t, err)
	defer in.Close()
	require.Equal(t, os.Getpid(), owner(&carried{in: in}, map[int]bool{os.Getpid(): true}))
	require.Zero(t, owner(&carried{in: in}, map[int]bool{1 << 30: true}))
}

func dialFrom(local *net.TCPAddr, to string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: local, Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
		}); e != nil {
			return e
		}
		return err
	}}
	return d.Dial("tcp", to)
}
