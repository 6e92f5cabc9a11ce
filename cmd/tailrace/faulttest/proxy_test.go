package faulttest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy carries connections to a process, until they are cut.
type proxy struct {
	addr, to string
	listener net.Listener

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	// hold keeps what goes there, or comes back: bytes wait, as in a network that
	// drops everything.
	holdThere, holdBack bool
	delay               time.Duration
	changed             *sync.Cond
	closed              bool
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: l.Addr().String(), to: to, listener: l, conns: map[net.Conn]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	go p.run()
	return p
}

func (p *proxy) run() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				_ = in.Close()
				return
			}
			p.mu.Lock()
			if p.closed {
				p.mu.Unlock()
				_, _ = in.Close(), out.Close()
				return
			}
			p.conns[in], p.conns[out] = struct{}{}, struct{}{}
			p.mu.Unlock()
			var wg sync.WaitGroup
			wg.Go(func() { p.carry(out, in, &p.holdThere) })
			wg.Go(func() { p.carry(in, out, &p.holdBack) })
			wg.Wait()
			p.mu.Lock()
			delete(p.conns, in)
			delete(p.conns, out)
			p.mu.Unlock()
		}()
	}
}

func (p *proxy) carry(to, from net.Conn, hold *bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			p.mu.Lock()
			for *hold && !p.closed {
				p.changed.Wait()
			}
			delay := p.delay
			p.mu.Unlock()
			if delay > 0 {
				<-time.After(delay) // the fault itself
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

// cut holds back what goes there, what comes back, or both.
func (p *proxy) cut(there, back bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holdThere, p.holdBack = there, back
	p.changed.Broadcast()
}

func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	_ = p.listener.Close()
}
