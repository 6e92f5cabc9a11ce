package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// protocol is the version of the protocol; other versions are refused.
const protocol = "1"

const (
	headCluster  = "tailrace-cluster"
	headProtocol = "tailrace-protocol"
	service      = "/tailrace/"

	maxMessage = 64 << 20
	window     = 4 << 20
)

// TLS names the files of a process: its certificate and key, and the authority that must have
// signed the other end's certificate. The zero value means no TLS.
type TLS struct {
	Cert, Key, CA string
}

// On reports whether TLS is configured.
func (t TLS) On() bool { return t != TLS{} }

// Maybe returns Config, or nil if there is no TLS.
func (t TLS) Maybe() (*tls.Config, error) {
	if !t.On() {
		return nil, nil
	}
	return t.Config()
}

// Config returns the crypto/tls configuration for either end of a connection.
func (t TLS) Config() (*tls.Config, error) {
	if t.Cert == "" || t.Key == "" || t.CA == "" {
		return nil, fmt.Errorf("TLS needs a certificate, its key and the authority's certificate: give all three or none")
	}
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %s, key %s: %w", t.Cert, t.Key, err)
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("TLS authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("TLS authority: %s holds no certificate", t.CA)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}, nil
}

// Guard refuses an address that others can reach without TLS, unless insecure says
// that the network is trusted.
func Guard(listen string, t TLS, insecure bool) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %q: %w; give host:port", listen, err)
	}
	if ip := net.ParseIP(host); !t.On() && !insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen %s can be reached from outside and there is no TLS: give --tls-cert, --tls-key and --tls-ca, or --insecure if the network is trusted", listen)
	}
	return nil
}

// Options of a Server and of a Dialer.
type Options struct {
	// Cluster is the name of the cluster, which must be the same at both ends.
	Cluster string
	TLS     TLS
	// LinkRate, if not 0, is how many bytes a second all connections that a Dialer makes send together at
	// most, and how many they receive: measurements of slow networks on one machine. Servers ignore it.
	LinkRate int64
}

// grpcServer serves streams by name.
type grpcServer struct {
	opt      Options
	handlers map[string]Handler
	grpc     *grpc.Server
}

// NewServer returns a server that uses gRPC. It has no handlers yet.
func NewServer(o Options) (Server, error) {
	s := &grpcServer{opt: o, handlers: map[string]Handler{}}
	creds := insecure.NewCredentials()
	if o.TLS.On() {
		c, err := o.TLS.Config()
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(c)
	}
	s.grpc = grpc.NewServer(
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(codec{}),
		grpc.UnknownServiceHandler(s.serve),
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(4*window),
		grpc.WriteBufferSize(128<<10), grpc.ReadBufferSize(128<<10),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	return s, nil
}

// Handle implements Server.
func (s *grpcServer) Handle(name string, h Handler) { s.handlers[name] = h }

// Serve implements Server.
func (s *grpcServer) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop implements Server.
func (s *grpcServer) Stop() { s.grpc.Stop() }

func (s *grpcServer) serve(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	md, _ := metadata.FromIncomingContext(stream.Context())
	if got := strings.Join(md.Get(headProtocol), ","); got != protocol {
		return status.Errorf(codes.FailedPrecondition, "this process speaks version %s of the protocol, the caller %q; use programs of one release", protocol, got)
	}
	if got := strings.Join(md.Get(headCluster), ","); got != s.opt.Cluster {
		return status.Errorf(codes.FailedPrecondition, "this process is of cluster %q, the caller of %q; check the addresses or --cluster", s.opt.Cluster, got)
	}
	h := s.handlers[strings.TrimPrefix(name, service)]
	if h == nil {
		return status.Errorf(codes.Unimplemented, "there is no %s here: is it the address of another role?", name)
	}
	return toStatus(h(serverStream{stream}))
}

type serverStream struct{ s grpc.ServerStream }

func (s serverStream) Context() context.Context { return s.s.Context() }
func (s serverStream) Send(m any) error         { return fromStatus("caller", s.s.SendMsg(m)) }
func (s serverStream) Recv(m any) error         { return fromStatus("caller", s.s.RecvMsg(m)) }
