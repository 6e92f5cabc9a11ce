package probe

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a registry with the metrics of the Go runtime and the process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Serve serves /healthz, /readyz, /metrics and /debug/pprof at an address; with "" it does nothing.
// ready returns why the process is not ready, or nil if it is.
func Serve(addr string, registry *prometheus.Registry, ready func() error) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w; give another --http", addr, err)
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

// Gauges registers gauges that are read at each scrape. help.txt holds their HELP texts.
func Gauges(r *prometheus.Registry, prefix string, read func() map[string]float64) {
	r.MustRegister(&collector{prefix, func(emit func(name string, v float64, labels ...string)) {
		for name, v := range read() {
			emit(name, v)
		}
	}, nil})
}

// Labelled registers numbers with labels: read calls emit for each, with as many label
// values as there are label names.
func Labelled(r *prometheus.Registry, prefix string, labels []string, read func(emit func(name string, v float64, labels ...string))) {
	r.MustRegister(&collector{prefix, read, labels})
}

// collector turns the results of a function into metrics, so that a role defines its metrics in one
// place.
type collector struct {
	prefix string
	read   func(emit func(name string, v float64, labels ...string))
	labels []string
}

func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.read(func(name string, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(c.prefix+name, Help(c.prefix+name), c.labels, nil), kind(name), v, labels...)
	})
}
