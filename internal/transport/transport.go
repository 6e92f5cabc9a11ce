package transport

import (
	"context"
	"net"
)

// Stream is one end of a stream of messages: *Raw or protobuf. One goroutine may
// send while another receives. Errors are of the log (sharedlog.KindOf), ErrUnavailable,
// or io.EOF when the other end has ended it.
type Stream interface {
	// Context ends with the stream.
	Context() context.Context
	// Send may return before the other end has received; it waits while the
	// connection is full.
	Send(m any) error
	Recv(m any) error
}

// ClientStream is the end of a stream that opened it.
type ClientStream interface {
	Stream
	// Hello sends the first message, before anybody receives. If the other end has
	// refused the stream, which may be known by then or not, the error is its reason.
	Hello(m any) error
	// CloseSend says that nothing more will be sent.
	CloseSend() error
}

// Dialer opens streams to the servers of a cluster. Safe for concurrent use.
type Dialer interface {
	// Open opens a stream; it ends with ctx. That the other end is there is known
	// only when it has sent something.
	Open(ctx context.Context, addr, name string) (ClientStream, error)
	// Call sends one message and waits for one.
	Call(ctx context.Context, addr, name string, request, reply any) error
	// Close ends all connections.
	Close() error
}

// Handler serves a stream; the stream ends when it returns.
type Handler func(Stream) error

// Handlers is where a role names what it serves.
type Handlers interface {
	// Handle names a handler; before the server serves.
	Handle(name string, h Handler)
}

// Server serves streams by name.
type Server interface {
	Handlers
	// Serve serves until Stop.
	Serve(l net.Listener) error
	// Stop ends all streams and waits for their handlers.
	Stop()
}
