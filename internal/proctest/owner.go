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
	port := c.in.RemoteAddr().(*net.TCPAddr).Port
	inode := ""
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
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
