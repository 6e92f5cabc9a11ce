package client

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
)

// Option is an option of Open.
type Option func(*opening)

type opening struct {
	transport transport.Options
	options   Options
}

// WithTLS makes all connections use TLS. The arguments are paths of PEM files: the certificate of
// this process, its key, and the certificate of the authority that has signed the servers'
// certificates. The servers verify the certificate of this process, too.
func WithTLS(cert, key, ca string) Option {
	return func(o *opening) { o.transport.TLS = transport.TLS{Cert: cert, Key: key, CA: ca} }
}

// WithCluster sets the name of the cluster, which its servers were started with. Servers of a
// cluster with another name refuse the connection. Default "tailrace".
func WithCluster(name string) Option { return func(o *opening) { o.transport.Cluster = name } }

// WithName identifies this process in the servers' logs and metrics, and in limits for clients.
func WithName(name string) Option { return func(o *opening) { o.options.Name = name } }

// WithQueueBytes bounds the bytes in flight: above it Append waits. Default 32 MiB.
func WithQueueBytes(n int64) Option { return func(o *opening) { o.options.QueueBytes = n } }

// WithoutAppends says that the caller only reads and trims: Options.NoAppends.
func WithoutAppends() Option { return func(o *opening) { o.options.NoAppends = true } }

// WithLogger sets where the client logs what an operator should know. Default slog.Default().
func WithLogger(l *slog.Logger) Option { return func(o *opening) { o.options.Logger = l } }

// Open connects to the cluster whose sequencers have these addresses, HOST:PORT,HOST:PORT,…, and
// waits until it accepts appends or, with WithoutAppends, until a sequencer has sent the list of
// shards. It is enough if one of the sequencers is reachable. If ctx ends first, the error says what
// is missing. Without WithTLS the connections are not encrypted.
func Open(ctx context.Context, sequencers string, options ...Option) (*Log, error) {
	o := opening{transport: transport.Options{Cluster: "tailrace"}}
	for a := range strings.SplitSeq(sequencers, ",") {
		if a = strings.TrimSpace(a); a == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, sharedlog.Errorf(sharedlog.KindInvalid, "%q is no address of a sequencer: give HOST:PORT,HOST:PORT,…", a)
		}
		o.options.Sequencers = append(o.options.Sequencers, a)
	}
	for _, option := range options {
		option(&o)
	}
	d, err := transport.NewDialer(o.transport)
	if err != nil {
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "connect to the log: %w", err)
	}
	o.options.Dialer = d
	l, err := Connect(ctx, o.options)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	l.dialer = d
	return l, nil
}
