package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePorts returns n addresses of 127.0.0.1 at which nobody listens. They lie below
// the range from which the kernel takes ports for connections and for port 0, so that
// nobody gets one of them while the process that they are for is not running: its
// address is its name.
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
			continue // somebody is there
		}
		held = append(held, l)
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
