package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// grpcDialer keeps one connection to each address.
type grpcDialer struct {
	opt   Options
	creds credentials.TransportCredentials
	link  *link // nil: connections are as fast as they are

	mu     sync.Mutex
	conns  map[string]*connection
	closed bool
}

// connection is the connection to an address. received counts the bytes that have come over it.
type connection struct {
	*grpc.ClientConn
	received atomic.Int64
}

// NewDialer returns a dialer that uses gRPC. It has no connections yet.
func NewDialer(o Options) (Dialer, error) {
	d := &grpcDialer{opt: o, conns: map[string]*connection{}, creds: insecure.NewCredentials()}
	if o.LinkRate > 0 {
		d.link = newLink(o.LinkRate)
	}
	if o.TLS.On() {
		c, err := o.TLS.Config()
		if err != nil {
			return nil, err
		}
		d.creds = credentials.NewTLS(c)
	}
	return d, nil
}

// Close implements Dialer.
func (d *grpcDialer) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	var errs []error
	for _, c := range d.conns {
		errs = append(errs, c.Close())
	}
	clear(d.conns)
	return errors.Join(errs...)
}

var errClosed = unavailable{errors.New("the connections of this process are closed")}

func (d *grpcDialer) conn(addr string) (*connection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	if c := d.conns[addr]; c != nil {
		return c, nil
	}
	c := new(connection)
	opts := []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := d.dial(ctx, addr)
			if err != nil {
				return nil, err
			}
			return &counted{conn, &c.received}, nil
		}),
		grpc.WithTransportCredentials(d.creds),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(4 * window),
		grpc.WithWriteBufferSize(128 << 10), grpc.WithReadBufferSize(128 << 10),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
	}
	var err error
	if c.ClientConn, err = grpc.NewClient("passthrough:///"+addr, opts...); err != nil {
		return nil, err
	}
	d.conns[addr] = c
	return c, nil
}

func (d *grpcDialer) dial(ctx context.Context, addr string) (net.Conn, error) {
	if d.link != nil {
		return d.link.dial(ctx, addr)
	}
	var plain net.Dialer
	return plain.DialContext(ctx, "tcp", addr)
}

// counted counts the bytes that are read from a connection.
type counted struct {
	net.Conn
	received *atomic.Int64
}

// Read implements net.Conn.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

func (d *grpcDialer) header(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, headCluster, d.opt.Cluster, headProtocol, protocol)
}

// Open implements Dialer.
func (d *grpcDialer) Open(ctx context.Context, addr, name string) (ClientStream, error) {
	c, err := d.conn(addr)
	if err != nil {
		return nil, err
	}
	s, err := c.NewStream(d.header(ctx), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, service+name)
	if err != nil {
		return nil, fromStatus(addr, err)
	}
	return grpcStream{s, addr, &c.received}, nil
}

// Call implements Dialer.
func (d *grpcDialer) Call(ctx context.Context, addr, name string, request, reply any) error {
	c, err := d.conn(addr)
	if err != nil {
		return err
	}
	return fromStatus(addr, c.Invoke(d.header(ctx), service+name, request, reply))
}

// grpcStream is the client's end of a stream.
type grpcStream struct {
	s        grpc.ClientStream
	addr     string
	received *atomic.Int64
}

// Context implements Stream.
func (s grpcStream) Context() context.Context { return s.s.Context() }

// Send implements Stream.
func (s grpcStream) Send(m any) error {
	err := s.s.SendMsg(m)
	if err == nil {
		return nil
	}
	return unavailable{err} // io.EOF: Recv returns the reason
}

// Hello implements ClientStream.
func (s grpcStream) Hello(m any) error {
	err := s.s.SendMsg(m)
	if errors.Is(err, io.EOF) {
		if why := s.Recv(new(Raw)); why != nil && !errors.Is(why, io.EOF) {
			return why
		}
		return unavailable{err}
	}
	return fromStatus(s.addr, err)
}

// Recv implements Stream.
func (s grpcStream) Recv(m any) error { return fromStatus(s.addr, s.s.RecvMsg(m)) }

// CloseSend implements ClientStream.
func (s grpcStream) CloseSend() error { return s.s.CloseSend() }

// Received implements ClientStream.
func (s grpcStream) Received() int64 { return s.received.Load() }
