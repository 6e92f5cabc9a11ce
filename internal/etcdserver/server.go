package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"tailrace.dev/tailrace/internal/transport"
)

// Server is an etcd with a single member.
type Server struct{ etcd *embed.Etcd }

// Start starts an etcd with its data in dir that serves clients at addr, and waits until it is
// ready. With TLS, clients must have a certificate of the authority.
func Start(ctx context.Context, dir, addr string, t transport.TLS) (*Server, error) {
	scheme := "http"
	if t.On() {
		scheme = "https"
	}
	client, err := url.Parse(scheme + "://" + addr)
	if err != nil {
		return nil, fmt.Errorf("etcd at %q: %w", addr, err)
	}
	// There are no peers, but etcd requires the address.
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c := embed.NewConfig()
	c.Name, c.Dir = "tailrace", dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	if t.On() {
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile, c.ClientTLSInfo.TrustedCAFile = t.Cert, t.Key, t.CA
		c.ClientTLSInfo.ClientCertAuth = true
	}
	// A single member elects itself when its election timer expires, and a lease is never shorter
	// than three election timeouts. The timeouts can be short, because no other member can be slow.
	c.TickMs, c.ElectionMs = 10, 100
	c.AutoCompactionMode, c.AutoCompactionRetention = "revision", "1000"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s, data in %s: %w", addr, dir, err)
	}
	s := &Server{etcd: e}
	select {
	case <-e.Server.ReadyNotify():
		return s, nil
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("etcd at %s: %w", addr, err)
	case <-ctx.Done():
		e.Close()
		return nil, ctx.Err()
	case <-time.After(30 * time.Second):
		e.Close()
		return nil, errors.New("etcd was not ready in 30 s")
	}
}

// Addr returns the address for clients.
func (s *Server) Addr() string { return s.etcd.Clients[0].Addr().String() }

// Failed returns a channel that receives the error if the server ends by itself.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Close stops the server.
func (s *Server) Close() { s.etcd.Close() }
