package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"tailrace.dev/tailrace/internal/probe"
	"tailrace.dev/tailrace/internal/transport"
)

// Common are the settings that all roles share.
type Common struct {
	// Listen is the address to listen on; Advertise is the address at which others reach it
	// (default: Listen).
	Listen, Advertise string
	// HTTP is the address of readiness, metrics and profiles; empty: none.
	HTTP    string
	Cluster string
	TLS     transport.TLS
	// Insecure allows a process that others can reach to work without TLS.
	Insecure bool
	Version  string
	Logger   *slog.Logger
}

// check fills in defaults. It refuses to work without TLS on an address that others can reach.
func (c *Common) check() error {
	if c.Advertise == "" {
		c.Advertise = c.Listen
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return transport.Guard(c.Listen, c.TLS, c.Insecure)
}

func (c *Common) transport() transport.Options {
	return transport.Options{Cluster: c.Cluster, TLS: c.TLS}
}

// role is the work of a process.
type role interface {
	Register(transport.Handlers)
	Close() error
	Done() <-chan struct{}
	Err() error
}

// serve runs a role until ctx ends or the role does.
func serve(ctx context.Context, c *Common, start func(transport.Dialer) (role, error), describe func(*prometheus.Registry, role) (ready func() error)) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen at %s: %w; is another process there? give another --listen", c.Listen, err)
	}
	defer listener.Close()
	if c.Advertise == c.Listen {
		c.Advertise = listener.Addr().String() // port 0 is replaced by the real one
	}
	server, err := transport.NewServer(c.transport())
	if err != nil {
		return err
	}
	dialer, err := transport.NewDialer(c.transport())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dialer.Close()) }()
	r, err := start(dialer)
	if err != nil {
		return err
	}
	r.Register(server)
	registry := probe.NewRegistry()
	ready := describe(registry, r)
	stopHTTP, err := probe.Serve(c.HTTP, registry, ready)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	defer stopHTTP()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	c.Logger.Info("serving", "address", c.Advertise, "http", c.HTTP, "version", c.Version)
	select {
	case <-ctx.Done():
		c.Logger.Info("stopping", "address", c.Advertise)
	case <-r.Done():
	case err = <-served:
	}
	server.Stop()
	return errors.Join(err, r.Close())
}
