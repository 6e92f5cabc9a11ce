package proctest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// owner returns which of the processes made a connection, or 0 if none did. It uses the kernel's
// table of sockets and the processes' open files.
func owner(c *carried, of map[int]bool) int {
	// Both ends: the table also lists sockets of no process that wait for their end (TIME_WAIT) on
	// the same local port.
	port := func(a net.Addr) string { return fmt.Sprintf(":%04X", a.(*net.TCPAddr).Port) }
	local, remote := port(c.in.RemoteAddr()), port(c.in.LocalAddr())
	inode := ""
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], local) && strings.HasSuffix(f[2], remote) {
				inode = f[9]
			}
		}
	}
	if inode == "" {
		return 0
	}
	for pid := range of {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && to == "socket:["+inode+"]" {
				return pid
			}
		}
	}
	return 0
}
