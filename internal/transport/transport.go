package transport

import (
	"context"
	"net"
)

// Stream is one end of a stream of messages, which are *Raw or protobuf. One goroutine may send
// while another receives. Errors are errors of the log (sharedlog.KindOf), ErrUnavailable, or
// io.EOF when the other end has closed the stream.
type Stream interface {
	// Context ends with the stream.
	Context() context.Context
	// Send may return before the other end has received the message. It waits while the connection
	// is full.
	Send(m any) error
	Recv(m any) error
}

// ClientStream is the client's end of a stream.
type ClientStream interface {
	Stream
	// Hello sends the first message; call it before Recv. If the other end is known to have refused
	// the stream, the error is the reason.
	Hello(m any) error
	// CloseSend declares that no more messages follow.
	CloseSend() error
	// Received returns how many bytes have come over the stream's connection, those of its other streams
	// included. It grows while a message that Recv waits for is on its way.
	Received() int64
}

// Dialer opens streams to the servers of a cluster. Safe for concurrent use.
type Dialer interface {
	// Open opens a stream, which ends with ctx. Success does not mean that the other end is
	// reachable; only a received message does.
	Open(ctx context.Context, addr, name string) (ClientStream, error)
	// Call sends one message and waits for one reply.
	Call(ctx context.Context, addr, name string, request, reply any) error
	// Close ends all connections.
	Close() error
}

// Handler serves a stream; the stream ends when the handler returns.
type Handler func(Stream) error

// Handlers registers the handlers of a role.
type Handlers interface {
	// Handle registers a handler. It must be called before Serve.
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
