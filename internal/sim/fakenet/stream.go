package fakenet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
)

// unavailable is an error that says nothing about the request.
type unavailable struct{ text string }

func (u unavailable) Error() string        { return u.text }
func (u unavailable) Is(target error) bool { return target == transport.ErrUnavailable }

var (
	errBroken = unavailable{"connection broken"}
	errKilled = unavailable{"this process was killed"}
	errClosed = unavailable{"the connections of this process are closed"}
	errReset  = unavailable{"the caller has left"}
)

// conn is a connection between two processes; hosts[0] has dialled.
type conn struct {
	net     *Network
	hosts   [2]*Host
	ends    [2]connEnd
	streams []*stream
}

type connEnd struct {
	err  error         // why it has ended, as far as this end knows
	dead chan struct{} // closed when it has ended
}

// newConn returns a connection. Called with mu held.
func newConn(n *Network, from, to *Host) *conn {
	c := &conn{net: n, hosts: [2]*Host{from, to}}
	for i := range c.ends {
		c.ends[i].dead = make(chan struct{})
	}
	n.conns = append(n.conns, c)
	n.stats.Opened++
	return c
}

// from returns the name of the host at an end.
func (c *conn) from(i int) string { return c.hosts[i].name }

func (c *conn) uses(from, to string) bool {
	return c.hosts[0].name == from && c.hosts[1].name == to || c.hosts[1].name == from && c.hosts[0].name == to
}

// fail ends the connection for one end. Messages that had arrived by then can still be received.
// Called with mu held.
func (c *conn) fail(end int, err error) {
	if c.ends[end].err != nil {
		return
	}
	c.ends[end].err = err
	close(c.ends[end].dead)
	if c.ends[1-end].err == nil {
		c.net.stats.Broken++
	} else {
		c.net.conns = slices.DeleteFunc(c.net.conns, func(o *conn) bool { return o == c })
	}
	now := time.Now()
	for _, s := range c.streams {
		s.lose(end, now)
	}
}

// failLater ends the connection for one end. It learns of the end from the other end, after wait
// and when the link carries messages, or by keepalive. Called with mu held.
func (c *conn) failLater(end int, wait time.Duration) {
	if c.ends[end].err != nil {
		return
	}
	from, to := c.from(1-end), c.from(end)
	host := c.hosts[end]
	dead := c.ends[end].dead
	go func() {
		limit := time.NewTimer(wait + c.net.set.Keepalive)
		defer limit.Stop()
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
			_ = c.net.pass(host, from, to, limit.C) // or keepalive notices
		case <-dead:
			return
		}
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		c.fail(end, errBroken)
	}()
}

// stream is a stream on a connection. half[i] carries what end i sends.
type stream struct {
	conn *conn
	name string
	half [2]half
	ends [2]*end
	// finished: the client's end knows how the stream ended.
	finished bool
}

// half is one direction of a stream.
type half struct {
	queue []item
	bytes int
	last  time.Time     // when the last item arrives
	wake  chan struct{} // wakes the receiver
	room  chan struct{} // wakes the sender
	over  bool          // its last item was sent
}

// item is a message, or the end of a direction.
type item struct {
	at   time.Time
	raw  *transport.Raw
	msg  []byte
	size int
	end  bool
	err  error // with end; nil: EOF
}

// end is one end of a stream.
type end struct {
	s      *stream
	side   int
	ctx    context.Context
	cancel context.CancelFunc
}

// open opens a stream.
func (c *conn) open(ctx context.Context, name string) (transport.ClientStream, error) {
	n := c.net
	s := &stream{conn: c, name: name}
	for i := range s.half {
		s.half[i].wake, s.half[i].room = make(chan struct{}, 1), make(chan struct{}, 1)
	}
	client, served := &end{s: s, side: 0}, &end{s: s, side: 1}
	s.ends = [2]*end{client, served}
	client.ctx, client.cancel = context.WithCancel(ctx)
	served.ctx, served.cancel = context.WithCancel(c.hosts[1].ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := c.ends[0].err; err != nil {
		client.cancel()
		served.cancel()
		return nil, err
	}
	if c.ends[1].err != nil {
		served.cancel() // no handler runs; this end learns of it later
		c.streams = append(c.streams, s)
		return client, nil
	}
	c.streams = append(c.streams, s)
	// The server's end learns that the client's end is gone, whatever the reason.
	context.AfterFunc(client.ctx, func() { s.reset() })
	c.hosts[1].wg.Add(1)
	arrives := time.Now().Add(n.latency(c.from(0), c.from(1), 0))
	s.half[0].last = arrives
	go func() {
		defer c.hosts[1].wg.Done()
		served.serve(arrives)
	}()
	return client, nil
}

// reset informs the server's end that the client's end is gone.
func (s *stream) reset() {
	n := s.conn.net
	n.mu.Lock()
	silent := s.finished || s.conn.ends[0].err != nil // the server's end knows, or learns of it from the connection
	wait := n.latency(s.conn.from(0), s.conn.from(1), 0)
	n.mu.Unlock()
	if silent {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	served := s.ends[1]
	select {
	case <-timer.C:
	case <-served.ctx.Done():
		return
	}
	limit := time.NewTimer(2 * n.set.Keepalive)
	defer limit.Stop()
	_ = n.pass(s.conn.hosts[1], s.conn.from(0), s.conn.from(1), limit.C) // or the connection is given up
	served.cancel()
}

// forget removes the stream from its connection.
func (s *stream) forget() {
	n := s.conn.net
	n.mu.Lock()
	defer n.mu.Unlock()
	s.conn.streams = slices.DeleteFunc(s.conn.streams, func(o *stream) bool { return o == s })
}

// lose drops what has not arrived at an end. Called with mu held.
func (s *stream) lose(end int, now time.Time) {
	h := &s.half[1-end]
	l := s.conn.net.link(s.conn.from(1-end), s.conn.from(end))
	for i := range h.queue {
		if ok, _ := l.carried(h.queue[i].at, now); !ok {
			h.queue = h.queue[:i]
			break
		}
	}
	if end == 1 {
		// Its context may end before or after the messages that have arrived are received; as with
		// gRPC, no caller may rely on either.
		s.ends[1].cancel()
	}
	signal(h.wake)
	signal(s.half[end].room)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// serve runs the handler of a stream that was opened.
func (e *end) serve(arrives time.Time) {
	defer e.s.forget()
	defer e.cancel()
	h := e.s.conn.hosts[1]
	n := h.net
	if !e.wait(func(now time.Time) (bool, time.Time, <-chan struct{}) {
		l := n.link(e.s.conn.from(0), e.s.conn.from(1))
		ok, until := l.carried(arrives, now)
		return ok, until, l.changed
	}) {
		return
	}
	n.mu.Lock()
	f := h.handlers[e.s.name]
	caller := e.s.conn.hosts[0].opt
	n.mu.Unlock()
	var err error
	switch {
	case caller.Cluster != h.opt.Cluster:
		err = sharedlog.Errorf(sharedlog.KindVersion, "%s: this process is of cluster %q, the caller of %q", h.name, h.opt.Cluster, caller.Cluster)
	case f == nil:
		err = fmt.Errorf("%s: there is no %s here: is it the address of another role?", h.name, e.s.name)
	default:
		err = travels(h.name, f(e))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	e.push(item{end: true, err: err})
}

// wait waits until ready returns true. It returns false if the stream has ended. ready is called
// with mu held, and returns what else to wait for.
func (e *end) wait(ready func(now time.Time) (ok bool, until time.Time, changed <-chan struct{})) bool {
	n := e.s.conn.net
	for {
		n.mu.Lock()
		now := time.Now()
		ok, until, changed := ready(now)
		n.mu.Unlock()
		if ok {
			return true
		}
		var due <-chan time.Time
		var timer *time.Timer
		if !until.IsZero() {
			timer = time.NewTimer(until.Sub(now))
			due = timer.C
		}
		select {
		case <-due:
		case <-changed:
		case <-e.ctx.Done():
		case <-e.s.conn.ends[e.side].dead:
		}
		if timer != nil {
			timer.Stop()
		}
		if e.ctx.Err() != nil {
			return false
		}
		select {
		case <-e.s.conn.ends[e.side].dead:
			return false
		default:
		}
	}
}

// travels returns an error as the other end gets it: errors of the log keep their kind.
func travels(host string, err error) error {
	var e *sharedlog.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return sharedlog.Errorf(e.Kind, "%s", bytes.TrimPrefix([]byte(err.Error()), []byte(e.Kind.String()+": ")))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, transport.ErrUnavailable):
		return unavailable{host + ": " + err.Error()}
	}
	return fmt.Errorf("%s: %s", host, err)
}

// push sends an item. Called with mu held.
func (e *end) push(it item) {
	h := &e.s.half[e.side]
	c := e.s.conn
	it.at = time.Now().Add(c.net.latency(c.from(e.side), c.from(1-e.side), it.size))
	if it.at.Before(h.last) {
		it.at = h.last
	}
	h.last = it.at
	h.over = h.over || it.end
	if c.ends[0].err != nil || c.ends[1].err != nil {
		return // the connection is gone
	}
	h.queue = append(h.queue, it)
	h.bytes += it.size
	signal(h.wake)
}

// Context implements transport.Stream.
func (e *end) Context() context.Context { return e.ctx }

// Send implements transport.Stream.
func (e *end) Send(m any) error {
	it, err := encode(m)
	if err != nil {
		return err
	}
	n := e.s.conn.net
	h := &e.s.half[e.side]
	waited := false
	for {
		n.mu.Lock()
		if err := e.ended(); err != nil {
			n.mu.Unlock()
			return err
		}
		me := e.s.conn.hosts[e.side]
		frozen := me.frozen && n.set.Window > 0
		if !frozen && (n.set.Window == 0 || h.bytes == 0 || h.bytes+it.size <= n.set.Window) {
			n.stats.Messages++
			n.stats.Bytes += it.size
			e.push(it)
			n.mu.Unlock()
			return nil
		}
		if !waited {
			waited = true
			n.stats.Blocked++
		}
		changed, dead := me.changed, e.s.conn.ends[e.side].dead
		n.mu.Unlock()
		select {
		case <-h.room:
		case <-changed:
		case <-e.ctx.Done():
		case <-dead:
		}
	}
}

// ended returns why nothing more can be sent. Called with mu held.
func (e *end) ended() error {
	if err := e.s.conn.ends[e.side].err; err != nil {
		return err
	}
	if err := e.ctx.Err(); err != nil {
		if e.side == 1 {
			return errReset
		}
		return unavailable{e.s.conn.from(1) + ": " + err.Error()}
	}
	if e.s.half[e.side].over {
		return unavailable{"the stream has ended"}
	}
	if e.side == 0 && e.refused(time.Now()) != nil {
		return unavailable{io.EOF.Error()}
	}
	return nil
}

// refused returns the item that ends the stream, if it has arrived from the server. Called with mu
// held.
func (e *end) refused(now time.Time) *item {
	q := e.s.half[1].queue
	if len(q) == 0 || !q[len(q)-1].end {
		return nil
	}
	if ok, _ := e.s.conn.net.link(e.s.conn.from(1), e.s.conn.from(0)).carried(q[len(q)-1].at, now); !ok {
		return nil
	}
	return &q[len(q)-1]
}

// Hello implements transport.ClientStream.
func (e *end) Hello(m any) error {
	err := e.Send(m)
	n := e.s.conn.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if it := e.refused(time.Now()); err != nil && it != nil && it.err != nil {
		return it.err
	}
	return err
}

// CloseSend implements transport.ClientStream.
func (e *end) CloseSend() error {
	n := e.s.conn.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.ended() == nil {
		e.push(item{end: true})
	}
	return nil
}

// Received implements transport.ClientStream: messages arrive whole.
func (e *end) Received() int64 { return 0 }

// Recv implements transport.Stream.
func (e *end) Recv(m any) error {
	c := e.s.conn
	n := c.net
	h := &e.s.half[1-e.side]
	for {
		n.mu.Lock()
		now := time.Now()
		me := c.hosts[e.side]
		l := n.link(c.from(1-e.side), c.from(e.side))
		if err := e.ctx.Err(); err != nil && (e.side == 0 || c.ends[1].err == nil) {
			n.mu.Unlock()
			if e.side == 1 {
				return errReset
			}
			return unavailable{c.from(1) + ": " + err.Error()}
		}
		var until time.Time
		if len(h.queue) > 0 && !me.frozen {
			it := h.queue[0]
			ok, resumes := l.carried(it.at, now)
			switch {
			case !ok && c.ends[e.side].err == nil: // else lose has left only what had arrived
				until = resumes
			case it.end:
				if e.side == 0 {
					e.s.half[0].over, e.s.finished = true, true
					n.mu.Unlock()
					e.cancel()
				} else {
					n.mu.Unlock()
				}
				if it.err != nil {
					return it.err
				}
				return io.EOF
			default:
				h.queue = h.queue[1:]
				h.bytes -= it.size
				signal(h.room)
				n.mu.Unlock()
				return decode(it, m)
			}
		} else if err := c.ends[e.side].err; err != nil && len(h.queue) == 0 {
			n.mu.Unlock()
			return err
		}
		changed, hostChanged, dead := l.changed, me.changed, c.ends[e.side].dead
		if c.ends[e.side].err != nil {
			dead = nil // frozen, with something to receive
		}
		n.mu.Unlock()
		var due <-chan time.Time
		var timer *time.Timer
		if !until.IsZero() {
			timer = time.NewTimer(until.Sub(now))
			due = timer.C
		}
		var done <-chan struct{}
		if e.ctx.Err() == nil {
			done = e.ctx.Done()
		}
		select {
		case <-h.wake:
		case <-due:
		case <-changed:
		case <-hostChanged:
		case <-done:
		case <-dead:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

func encode(m any) (item, error) {
	switch m := m.(type) {
	case *transport.Raw:
		it := item{raw: &transport.Raw{Parts: slices.Clone(m.Parts)}}
		for _, p := range m.Parts {
			it.size += len(p)
		}
		return it, nil
	case proto.Message:
		b, err := proto.Marshal(m)
		return item{msg: b, size: len(b)}, err
	}
	return item{}, fmt.Errorf("fakenet: a message of type %T", m) // a bug
}

func decode(it item, m any) error {
	b := it.msg
	if it.raw != nil {
		b = make([]byte, 0, it.size)
		for _, p := range it.raw.Parts {
			b = append(b, p...)
		}
	}
	switch m := m.(type) {
	case *transport.Raw:
		m.Bytes = b
		return nil
	case proto.Message:
		return proto.Unmarshal(b, m)
	}
	return fmt.Errorf("fakenet: a message of type %T", m) // a bug
}
