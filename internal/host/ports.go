package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePorts returns n addresses of 127.0.0.1 at which no process listens. They lie below the range from
// which the kernel takes ports for connections and for port 0. So no other process gets one of them
// while its owner is not running: a process is known by its address.
func FreePorts(n int) ([]string, error) {
	var addrs []string
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for try := 0; len(addrs) < n; try++ {
		if try > 100*n {
			return nil, errors.New("no free ports on 127.0.0.1 between 10000 and 32000")
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(22000)))
		if err != nil {
			continue // the port is in use
		}
		held = append(held, l)
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
