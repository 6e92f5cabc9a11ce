package copies

import "context"

// Peers connects the processes that run the tasks of a job. Safe for concurrent use.
type Peers interface {
	// Address is where other processes reach this one.
	Address() string
	// Open opens a stream to the process at an address, to ask it for key groups of a job. It ends with
	// ctx. Success does not mean that the process is reachable.
	Open(ctx context.Context, address, job string) (Stream, error)
}

// Stream is one end of a stream of messages. One goroutine may send while another one receives.
type Stream interface {
	// Context ends with the stream.
	Context() context.Context
	// Send sends a message, which the caller no longer uses.
	Send(b []byte) error
	// Recv returns the next message, which is the caller's; io.EOF: there is none.
	Recv() ([]byte, error)
}
