package client

import (
	"context"
	"fmt"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
)

// fakeNet carries streams between the client and handlers of the test, in order and
// without loss until a stream is cut.
type fakeNet struct {
	mu       sync.Mutex
	handlers map[string]map[string]transport.Handler // by address and name
	streams  map[*fakeStream]struct{}
}

func newFakeNet() *fakeNet {
	return &fakeNet{handlers: map[string]map[string]transport.Handler{}, streams: map[*fakeStream]struct{}{}}
}

func (n *fakeNet) handle(addr, name string, h transport.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handlers[addr] == nil {
		n.handlers[addr] = map[string]transport.Handler{}
	}
	n.handlers[addr][name] = h
}

// cut ends the streams that match, or all.
func (n *fakeNet) cut(match func(s *fakeStream) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.streams {
		if match(s) {
			s.end(fmt.Errorf("%s: %w: the stream was cut", s.addr, transport.ErrUnavailable))
		}
	}
}

// fakeStream is a stream with its two ends.
type fakeStream struct {
	addr, name string
	ctx        context.Context
	cancel     context.CancelCauseFunc
	there      chan any // to the server
	back       chan any
}

func (s *fakeStream) end(err error) { s.cancel(err) }

// Open implements transport.Dialer.
func (n *fakeNet) Open(ctx context.Context, addr, name string) (transport.ClientStream, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.handlers[addr][name]
	if h == nil {
		return nil, fmt.Errorf("%s: %w: nobody listens", addr, transport.ErrUnavailable)
	}
	s := &fakeStream{addr: addr, name: name, there: make(chan any, 64), back: make(chan any, 64)}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	n.streams[s] = struct{}{}
	go func() {
		err := h(fakeEnd{s, s.there, s.back})
		if err == nil {
			err = io.EOF
		}
		s.end(err)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.streams, s)
	}()
	return fakeClient{fakeEnd{s, s.back, s.there}}, nil
}

// Call implements transport.Dialer.
func (n *fakeNet) Call(ctx context.Context, addr, name string, request, reply any) error {
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
func (n *fakeNet) Close() error {
	n.cut(func(*fakeStream) bool { return true })
	return nil
}

type fakeEnd struct {
	s       *fakeStream
	in, out chan any
}

func (e fakeEnd) Context() context.Context { return e.s.ctx }

func (e fakeEnd) Send(m any) error {
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

func (e fakeEnd) Recv(m any) error {
	var got any
	select {
	case got = <-e.in: // what was sent before the end is received
	default:
		select {
		case got = <-e.in:
		case <-e.s.ctx.Done():
			return context.Cause(e.s.ctx)
		}
	}
	if r, ok := m.(*transport.Raw); ok { // copied here: nobody may write to what was sent
		r.Bytes = make([]byte, 0, 64)
		for _, p := range got.(*transport.Raw).Parts {
			r.Bytes = append(r.Bytes, p...)
		}
		return nil
	}
	proto.Merge(m.(proto.Message), got.(proto.Message))
	return nil
}

// fakeClient is the end that opened the stream.
type fakeClient struct{ fakeEnd }

func (c fakeClient) Hello(m any) error { return c.Send(m) }
func (c fakeClient) CloseSend() error  { return nil }
