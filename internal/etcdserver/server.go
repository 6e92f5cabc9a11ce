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

// Server is one etcd, alone.
type Server struct{ etcd *embed.Etcd }

// Start starts an etcd whose data are in dir and that answers clients at addr, and
// waits until it does. With TLS, clients must have a certificate of the authority.
func Start(ctx context.Context, dir, addr string, t transport.TLS) (*Server, error) {
	scheme := "http"
	if t.On() {
		scheme = "https"
	}
	client, err := url.Parse(scheme + "://" + addr)
	if err != nil {
		return nil, fmt.Errorf("etcd at %q: %w", addr, err)
	}
	// Peers there are none; the address is asked for all the same.
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
	// A single member elects itself when its timer runs out, and a lease is never
	// shorter than three of those: short ones, since nobody else can be slow.
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

// Addr is where it answers.
func (s *Server) Addr() string { return s.etcd.Clients[0].Addr().String() }

// Failed delivers why it ended by itself.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Close ends it.
func (s *Server) Close() { s.etcd.Close() }
