package transport

import (
	"context"
	"net"
	"sync"
	"time"
)

// link is a rate that all connections of a Dialer share, one way each: what a process would have of a
// network card of this speed.
type link struct{ out, in meter }

func newLink(bytesPerSecond int64) *link {
	return &link{out: meter{rate: float64(bytesPerSecond)}, in: meter{rate: float64(bytesPerSecond)}}
}

// linkPiece is the most that is sent at once, linkQueue the time of the bytes that may wait to be sent
// while the sender continues: shorter waits are not exact.
const (
	linkPiece = 32 << 10
	linkQueue = time.Millisecond
)

// dial connects to an address over the link.
func (l *link) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &linked{c, l}, nil
}

// linked is a connection over a link.
type linked struct {
	net.Conn
	link *link
}

// Read implements net.Conn.
func (c *linked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), linkPiece)])
	c.link.in.pass(n)
	return n, err
}

// Write implements net.Conn.
func (c *linked) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		piece := b[n:min(n+linkPiece, len(b))]
		c.link.out.pass(len(piece))
		var m int
		m, err = c.Conn.Write(piece)
		n += m
	}
	return n, err
}

// meter lets bytes pass at a rate.
type meter struct {
	rate float64 // bytes a second
	mu   sync.Mutex
	free time.Time // when all that has passed so far is through
}

// pass waits until so many bytes are through, but for linkQueue.
func (m *meter) pass(n int) {
	m.mu.Lock()
	now := time.Now()
	if m.free.Before(now) {
		m.free = now
	}
	m.free = m.free.Add(time.Duration(float64(n) / m.rate * float64(time.Second)))
	wait := m.free.Sub(now)
	m.mu.Unlock()
	if wait > linkQueue {
		time.Sleep(wait)
	}
}
