package proctest

import (
	"net"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// Proxy forwards connections to a process until they are cut.
type Proxy struct {
	Addr, to string
	listener net.Listener

	mu    sync.Mutex
	conns map[*carried]struct{}
	// holdThere and holdBack hold back bytes to the process, or from it, as a network that drops
	// everything. from does so for the connections of these processes.
	holdThere, holdBack bool
	from                map[int]bool
	delay               time.Duration
	changed             *sync.Cond
	closed              bool
}

// carried is one forwarded connection.
type carried struct {
	in, out net.Conn
	pid     int // of the process that made it; 0: not looked up
}

func newProxy(t T, to string) *Proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Addr: l.Addr().String(), to: to, listener: l, conns: map[*carried]struct{}{}, from: map[int]bool{}}
	p.changed = sync.NewCond(&p.mu)
	go p.run()
	return p
}

func (p *Proxy) run() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				reset(in)
				return
			}
			c := &carried{in: in, out: out}
			p.mu.Lock()
			if p.closed {
				p.mu.Unlock()
				_, _ = in.Close(), out.Close()
				return
			}
			p.conns[c] = struct{}{}
			if len(p.from) > 0 {
				c.pid = owner(c, p.from)
			}
			p.mu.Unlock()
			var wg sync.WaitGroup
			wg.Go(func() { p.carry(c, out, in, &p.holdThere) })
			wg.Go(func() { p.carry(c, in, out, &p.holdBack) })
			wg.Wait()
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
		}()
	}
}

// reset resets an accepted connection, which comes close to refusing it.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (p *Proxy) carry(c *carried, to, from net.Conn, hold *bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			p.mu.Lock()
			for (*hold || p.from[c.pid]) && !p.closed {
				p.changed.Wait()
			}
			delay := p.delay
			p.mu.Unlock()
			if delay > 0 {
				<-time.After(delay) // the delay is the fault
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Cut holds back bytes to the process, from it, or both.
func (p *Proxy) Cut(there, back bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holdThere, p.holdBack = there, back
	p.changed.Broadcast()
}

// CutFrom holds back all bytes on the connections of one process, or stops doing so.
func (p *Proxy) CutFrom(pid int, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cut {
		p.from[pid] = true
		for c := range p.conns {
			if c.pid == 0 {
				c.pid = owner(c, p.from)
			}
		}
	} else {
		delete(p.from, pid)
	}
	p.changed.Broadcast()
}

// Slow delays every piece of data.
func (p *Proxy) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_, _ = c.in.Close(), c.out.Close()
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	_ = p.listener.Close()
}
