package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are handed out from below the range from which the kernel takes ports for connections and for
// port 0. A process takes blocks of them: it listens at a block's first port until it ends.
const (
	firstPort, blocks, blockPorts = 10_000, 220, 100
	// A process that needs more takes the ports of its own blocks again.
	mostBlocks = 20
)

// FreePorts returns n addresses of 127.0.0.1 at which no process listens. No other process gets one of
// them from this function while this process runs, whether something listens there or not: the servers
// that it starts are known by their addresses, and come back to them. This process does not get one
// again before it has had about two thousand others.
func FreePorts(n int) ([]string, error) { return processPorts.free(n) }

var processPorts ports

// ports are those of a process.
type ports struct {
	mu     sync.Mutex
	guards []net.Listener // at the first port of each block
	begins []int          // the blocks' first ports
	next   int            // counts the ports of all blocks, without the first ones
}

func (p *ports) free(n int) (addrs []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tries := 0; len(addrs) < n; tries++ {
		if tries > n+mostBlocks*blockPorts {
			return nil, errors.New("no free ports on 127.0.0.1")
		}
		port, err := p.take()
		if err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // a server of this process, or of a program that does not ask here
		}
		addrs = append(addrs, l.Addr().String())
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// take returns the next port of the process's blocks.
func (p *ports) take() (int, error) {
	const usable = blockPorts - 1
	at := p.next
	p.next++
	block := at / usable % mostBlocks
	if block == len(p.begins) {
		begin, err := p.claim()
		if err != nil {
			return 0, err
		}
		p.begins = append(p.begins, begin)
	}
	return p.begins[block] + 1 + at%usable, nil
}

// claim makes a block this process's and returns its first port.
func (p *ports) claim() (int, error) {
	from := rand.IntN(blocks)
	for i := range blocks {
		begin := firstPort + (from+i)%blocks*blockPorts
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", begin))
		if err != nil {
			continue // another process's
		}
		p.guards = append(p.guards, l)
		return begin, nil
	}
	return 0, errors.New("all blocks of ports on 127.0.0.1 between 10000 and 32000 are taken")
}
