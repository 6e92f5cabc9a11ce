package fakenet

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/transport"
)

// Host is one process on the network, from its start to its end. Another process may use its name
// afterwards.
type Host struct {
	net  *Network
	name string
	opt  transport.Options

	// Guarded by net.mu:
	handlers map[string]transport.Handler
	serving  bool
	dead     bool // killed, or its dialer was closed
	dials    map[string]*dial
	frozen   bool
	changed  chan struct{} // closed when frozen or dead changes
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup // handlers
	stopped  chan struct{}  // closed by Stop or Kill
}

// dial is the state of a host's connection to an address.
type dial struct {
	conn    *conn
	making  chan struct{} // closed when the attempt in progress has ended
	failed  error         // of the last attempt
	retryAt time.Time     // Open fails at once until then
	fails   int
}

// Start returns a host with a name. It stands for the process that has the name from now on.
func (n *Network) Start(name string, o transport.Options) *Host {
	h := &Host{
		net: n, name: name, opt: o, handlers: map[string]transport.Handler{}, dials: map[string]*dial{},
		changed: make(chan struct{}), stopped: make(chan struct{}),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name] = h
	return h
}

// Name returns the host's name, which is its address.
func (h *Host) Name() string { return h.name }

// Dialer returns the dialer of the host's process.
func (h *Host) Dialer() transport.Dialer { return dialer{h} }

// Server returns the server of the host's process. Serve needs no listener.
func (h *Host) Server() transport.Server { return server{h} }

// Freeze stops the host's goroutines at their next Send or Recv, or lets them continue.
func (h *Host) Freeze(frozen bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.frozen == frozen || h.dead {
		return
	}
	h.frozen = frozen
	close(h.changed)
	h.changed = make(chan struct{})
	if !frozen {
		return
	}
	since := h.changed
	// A frozen host does not answer keepalives.
	time.AfterFunc(h.net.set.Keepalive+time.Second, func() {
		h.net.mu.Lock()
		defer h.net.mu.Unlock()
		if h.changed != since || !h.frozen {
			return
		}
		for _, c := range slices.Clone(h.net.conns) {
			for i, o := range c.hosts {
				if o == h {
					c.fail(1-i, errBroken)
					c.failLater(i, 0)
				}
			}
		}
	})
}

// Kill ends the process: its own streams end at once. Others notice after a moment by a reset of
// the operating system or, if it was silent (a power cut), by keepalive.
func (h *Host) Kill(silent bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.kill(silent)
}

// kill is Kill with mu held.
func (h *Host) kill(silent bool) {
	if h.dead {
		return
	}
	h.dead, h.serving, h.frozen = true, false, false
	h.stop()
	close(h.changed)
	h.changed = make(chan struct{})
	h.cancel()
	n := h.net
	if n.hosts[h.name] == h {
		delete(n.hosts, h.name)
	}
	for _, c := range slices.Clone(n.conns) {
		for i, o := range c.hosts {
			if o != h {
				continue
			}
			c.fail(i, errKilled)
			wait := n.latency(c.from(i), c.from(1-i), 0)
			if silent {
				wait += n.between(0, n.set.Keepalive)
			}
			c.failLater(1-i, wait)
		}
	}
}

func (h *Host) stop() {
	select {
	case <-h.stopped:
	default:
		close(h.stopped)
	}
}

type server struct{ h *Host }

// Handle implements transport.Server.
func (s server) Handle(name string, f transport.Handler) {
	s.h.net.mu.Lock()
	defer s.h.net.mu.Unlock()
	s.h.handlers[name] = f
}

// Serve implements transport.Server; the listener may be nil, since the host's name is
// the address.
func (s server) Serve(net.Listener) error {
	s.h.net.mu.Lock()
	if s.h.dead {
		s.h.net.mu.Unlock()
		return errKilled
	}
	s.h.serving = true
	s.h.net.mu.Unlock()
	<-s.h.stopped
	return nil
}

// Stop implements transport.Server.
func (s server) Stop() {
	n := s.h.net
	n.mu.Lock()
	s.h.serving = false
	s.h.stop()
	for _, c := range slices.Clone(n.conns) {
		if c.hosts[1] == s.h {
			c.fail(1, errClosed)
			c.failLater(0, n.latency(c.from(1), c.from(0), 0))
		}
	}
	n.mu.Unlock()
	s.h.wg.Wait()
}

type dialer struct{ h *Host }

// Close implements transport.Dialer.
func (d dialer) Close() error {
	n := d.h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	d.h.cancel()
	for _, c := range slices.Clone(n.conns) {
		if c.hosts[0] == d.h {
			c.fail(0, errClosed)
			c.failLater(1, n.latency(c.from(0), c.from(1), 0))
		}
	}
	return nil
}

// Call implements transport.Dialer.
func (d dialer) Call(ctx context.Context, addr, name string, request, reply any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := d.Open(ctx, addr, name)
	if err != nil {
		return err
	}
	// Recv's error says more than Send's.
	if err := st.Send(request); err == nil {
		_ = st.CloseSend() // never fails
	}
	return st.Recv(reply)
}

// Open implements transport.Dialer.
func (d dialer) Open(ctx context.Context, addr, name string) (transport.ClientStream, error) {
	c, err := d.h.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	return c.open(ctx, name)
}

// connect returns the connection to an address; it makes one if there is none.
func (h *Host) connect(ctx context.Context, addr string) (*conn, error) {
	n := h.net
	for {
		n.mu.Lock()
		if h.ctx.Err() != nil {
			n.mu.Unlock()
			return nil, errClosed
		}
		d := h.dials[addr]
		if d == nil {
			d = new(dial)
			h.dials[addr] = d
		}
		if d.conn != nil && d.conn.ends[0].err == nil {
			c := d.conn
			n.mu.Unlock()
			return c, nil
		}
		if d.making == nil && time.Now().Before(d.retryAt) {
			err := d.failed
			n.mu.Unlock()
			return nil, err
		}
		if d.making == nil {
			d.making = make(chan struct{})
			go h.dial(d, addr)
		}
		making := d.making
		n.mu.Unlock()
		select {
		case <-making:
			n.mu.Lock()
			err := d.failed
			n.mu.Unlock()
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, unavailable{addr + ": " + ctx.Err().Error()}
		}
	}
}

// dial makes a connection.
func (h *Host) dial(d *dial, addr string) {
	n := h.net
	c, err := h.handshake(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	d.conn, d.failed = c, err
	if err == nil {
		d.fails = 0
	} else {
		n.stats.Refused++
		d.fails = min(d.fails+1, 8)
		d.retryAt = time.Now().Add(n.between(0, 10*time.Millisecond<<min(d.fails, 4)))
	}
	close(d.making)
	d.making = nil
}

var errTimeout = errors.New("timeout")

// handshake sends a message and waits for one back.
func (h *Host) handshake(addr string) (*conn, error) {
	n := h.net
	limit := time.NewTimer(n.set.DialTimeout)
	defer limit.Stop()
	if err := n.pass(h, h.name, addr, limit.C); err != nil {
		return nil, unavailable{addr + ": " + err.Error()}
	}
	n.mu.Lock()
	peer := n.hosts[addr]
	if peer != nil && !peer.serving {
		peer = nil
	}
	n.mu.Unlock()
	if err := n.pass(h, addr, h.name, limit.C); err != nil {
		return nil, unavailable{addr + ": " + err.Error()}
	}
	if peer == nil {
		return nil, unavailable{addr + ": connection refused"}
	}
	// A frozen process does not complete handshakes.
	for {
		n.mu.Lock()
		frozen, changed := peer.frozen, peer.changed
		if peer.dead || !peer.serving {
			n.mu.Unlock()
			return nil, unavailable{addr + ": connection reset"}
		}
		if h.ctx.Err() != nil {
			n.mu.Unlock()
			return nil, errClosed
		}
		if !frozen {
			c := newConn(n, h, peer)
			n.mu.Unlock()
			return c, nil
		}
		n.mu.Unlock()
		select {
		case <-changed:
		case <-h.ctx.Done():
			return nil, errClosed
		case <-limit.C:
			return nil, unavailable{addr + ": " + errTimeout.Error()}
		}
	}
}

// pass waits for the time that a message takes from one name to another.
func (n *Network) pass(h *Host, from, to string, limit <-chan time.Time) error {
	n.mu.Lock()
	at := time.Now().Add(n.latency(from, to, 0))
	n.mu.Unlock()
	for {
		n.mu.Lock()
		l := n.link(from, to)
		now := time.Now()
		ok, until := l.carried(at, now)
		changed := l.changed
		n.mu.Unlock()
		if ok {
			return nil
		}
		var timer *time.Timer
		var due <-chan time.Time
		if !until.IsZero() {
			timer = time.NewTimer(until.Sub(now))
			due = timer.C
		}
		var err error
		select {
		case <-due:
		case <-changed:
		case <-h.ctx.Done():
			err = errClosed
		case <-limit:
			err = errTimeout
		}
		if timer != nil {
			timer.Stop()
		}
		if err != nil {
			return err
		}
	}
}
