// Package memory carries streams between handlers and callers of one process, for tests of a single
// role. It delivers in order, and loses nothing until a stream is cut. The simulator has its own
// network (internal/sim/fakenet), which loses and delays messages.
package memory

import (
	"context"
	"fmt"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
)

// Net is a transport.Dialer whose servers are handlers. Safe for concurrent use.
type Net struct {
	mu       sync.Mutex
	handlers map[string]map[string]transport.Handler // by address and name
	streams  map[*Stream]struct{}
}

// New returns a network without servers.
func New() *Net {
	return &Net{handlers: map[string]map[string]transport.Handler{}, streams: map[*Stream]struct{}{}}
}

// Handle registers a handler at an address; nil removes it. Open streams stay open.
func (n *Net) Handle(addr, name string, h transport.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handlers[addr] == nil {
		n.handlers[addr] = map[string]transport.Handler{}
	}
	n.handlers[addr][name] = h
}

// Cut ends the streams that match.
func (n *Net) Cut(match func(s *Stream) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.streams {
		if match(s) {
			s.cancel(fmt.Errorf("%s: %w: the stream was cut", s.Addr, transport.ErrUnavailable))
		}
	}
}

// Stream is a stream with both its ends.
type Stream struct {
	Addr, Name string // of its server and handler

	ctx    context.Context
	cancel context.CancelCauseFunc
	there  chan any // to the server
	back   chan any
}

// Open implements transport.Dialer.
func (n *Net) Open(ctx context.Context, addr, name string) (transport.ClientStream, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.handlers[addr][name]
	if h == nil {
		return nil, fmt.Errorf("%s: %w: no process listens", addr, transport.ErrUnavailable)
	}
	s := &Stream{Addr: addr, Name: name, there: make(chan any, 64), back: make(chan any, 64)}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	n.streams[s] = struct{}{}
	go func() {
		err := h(end{s, s.there, s.back})
		if err == nil {
			err = io.EOF
		}
		s.cancel(err)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.streams, s)
	}()
	return client{end{s, s.back, s.there}}, nil
}

// Call implements transport.Dialer.
func (n *Net) Call(ctx context.Context, addr, name string, request, reply any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := n.Open(ctx, addr, name)
	if err != nil {
		return err
	}
	if err := st.Hello(request); err != nil {
		return err
	}
	return st.Recv(reply)
}

// Close implements transport.Dialer.
func (n *Net) Close() error {
	n.Cut(func(*Stream) bool { return true })
	return nil
}

type end struct {
	s       *Stream
	in, out chan any
}

func (e end) Context() context.Context { return e.s.ctx }

func (e end) Send(m any) error {
	if p, ok := m.(proto.Message); ok {
		m = proto.Clone(p)
	}
	select {
	case <-e.s.ctx.Done():
		return context.Cause(e.s.ctx)
	default:
	}
	select {
	case e.out <- m:
		return nil
	case <-e.s.ctx.Done():
		return context.Cause(e.s.ctx)
	}
}

func (e end) Recv(m any) error {
	var got any
	select {
	case got = <-e.in: // messages sent before the end are received first
	default:
		select {
		case got = <-e.in:
		case <-e.s.ctx.Done():
			return context.Cause(e.s.ctx)
		}
	}
	if r, ok := m.(*transport.Raw); ok { // copied here, because what was sent must not be written to
		r.Bytes = make([]byte, 0, 64)
		for _, p := range got.(*transport.Raw).Parts {
			r.Bytes = append(r.Bytes, p...)
		}
		return nil
	}
	proto.Merge(m.(proto.Message), got.(proto.Message))
	return nil
}

// client is the client's end of a stream.
type client struct{ end }

func (c client) Hello(m any) error { return c.Send(m) }
func (c client) CloseSend() error  { return nil }
func (c client) Received() int64   { return 0 } // messages arrive whole
