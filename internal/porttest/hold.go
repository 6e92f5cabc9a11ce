package porttest

import (
	"fmt"
	"os"
	"syscall"
)

// T is the part of a test that the package needs.
type T interface {
	Errorf(format string, args ...any)
	FailNow()
	Cleanup(f func())
}

// Hold returns n addresses of 127.0.0.1, HOST:PORT, which only a server that names one of them gets
// until the test ends.
func Hold(t T, n int) []string {
	addrs := make([]string, n)
	for i := range addrs {
		port, err := hold(t)
		if err != nil {
			t.Errorf("reserve a port: %v", err)
			t.FailNow()
		}
		addrs[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return addrs
}

func hold(t T) (port int, err error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	// After the bind, so that the kernel chooses a port that no other socket holds.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return name.(*syscall.SockaddrInet4).Port, nil
}
