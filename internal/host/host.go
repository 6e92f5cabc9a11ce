package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tailrace.dev/tailrace/internal/transport"
)

// Common are the settings that all roles share.
type Common struct {
	// Listen is the address to listen at; Advertise the one at which others reach
	// it (default: Listen).
	Listen, Advertise string
	// HTTP is where readiness, metrics and profiles are served; empty: nowhere.
	HTTP    string
	Cluster string
	TLS     transport.TLS
	// Insecure lets a process that others can reach speak without TLS.
	Insecure bool
	Version  string
	Logger   *slog.Logger
}

// check refuses to speak without TLS where others could listen.
func (c *Common) check() error {
	if c.Advertise == "" {
		c.Advertise = c.Listen
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("--listen %q: %w; give host:port", c.Listen, err)
	}
	if ip := net.ParseIP(host); !c.TLS.On() && !c.Insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen %s can be reached from outside and there is no TLS: give --tls-cert, --tls-key and --tls-ca, or --insecure if the network is trusted", c.Listen)
	}
	return nil
}

func (c *Common) transport() transport.Options {
	return transport.Options{Cluster: c.Cluster, TLS: c.TLS}
}

// role is what a process does.
type role interface {
	Register(*transport.Server)
	Close() error
	Done() <-chan struct{}
	Err() error
}

// serve runs a role until ctx ends or the role does.
func serve(ctx context.Context, c *Common, start func(*transport.Dialer) (role, error), describe func(*prometheus.Registry, role) (ready func() error)) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen at %s: %w; is another process there? give another --listen", c.Listen, err)
	}
	defer listener.Close()
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
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	ready := describe(registry, r)
	stopHTTP, err := serveHTTP(c, registry, ready)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	defer stopHTTP()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	c.Logger.Info("serves", "address", c.Advertise, "http", c.HTTP, "version", c.Version)
	select {
	case <-ctx.Done():
		c.Logger.Info("stops", "address", c.Advertise)
	case <-r.Done():
	case err = <-served:
	}
	server.Stop()
	return errors.Join(err, r.Close())
}

// serveHTTP serves /healthz, /readyz, /metrics and /debug/pprof.
func serveHTTP(c *Common, registry *prometheus.Registry, ready func() error) (stop func(), err error) {
	if c.HTTP == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", c.HTTP)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w; give another --http", c.HTTP, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }()
	return func() { _ = s.Close() }, nil
}

// gauges registers numbers that are read when somebody asks.
func gauges(r *prometheus.Registry, prefix string, read func() map[string]float64) {
	r.MustRegister(&collector{prefix, read})
}

// collector makes metrics of a map, so that a role says its numbers in one place.
type collector struct {
	prefix string
	read   func() map[string]float64
}

func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	for name, v := range c.read() {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(c.prefix+name, "see docs/operations.md", nil, nil), prometheus.GaugeValue, v)
	}
}
