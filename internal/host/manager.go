package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tailrace.dev/tailrace/internal/probe"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/manager/server"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/observe"
)

// Manager holds the settings of a task manager process.
type Manager struct {
	Common
	Name       string
	Sequencers []string
	Etcd       []string
	// Wait is how long to wait for the log and etcd.
	Wait time.Duration
	// Checkpoints is the URL of the workers' checkpoint store, or "".
	Checkpoints string
	// TrimInterval and Retention are as in the server's options.
	TrimInterval, Retention time.Duration
	// Observer is told the steps of what the manager does with jobs; nil: it is not.
	Observer observe.Observer
}

// Run runs the manager until ctx ends.
func (m *Manager) Run(ctx context.Context) (err error) {
	begin, cancel := context.WithTimeout(ctx, m.Wait)
	defer cancel()
	if m.Logger == nil {
		m.Logger = slog.Default()
	}
	log, closeLog, err := OpenLog(begin, m.transport(), client.Options{Sequencers: m.Sequencers, Name: m.Name, Logger: m.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	store, err := meta.Connect(begin, log, meta.Options{Endpoints: m.Etcd, Cluster: m.Cluster, TLS: m.TLS})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := meta.Announce(begin, log, m.Etcd); err != nil {
		return err
	}
	var checkpoints checkpoint.Store
	if m.Checkpoints != "" {
		config, err := m.TLS.Maybe()
		if err != nil {
			return err
		}
		if checkpoints, err = checkpoint.OpenRedis(begin, checkpoint.RedisOptions{URL: m.Checkpoints, TLS: config, Lazy: true, Logger: m.Logger}); err != nil {
			return fmt.Errorf("--checkpoints: %w", err)
		}
		defer func() { err = errors.Join(err, checkpoints.Close()) }()
	}
	id := make([]byte, 8)
	rand.Read(id) // never fails (crypto/rand)
	return serve(ctx, &m.Common, func(d transport.Dialer) (role, error) {
		return server.Start(server.Options{
			Log: log, Store: store, Dialer: d, Observer: m.Observer, Logger: m.Logger,
			Checkpoints: checkpoints, TrimInterval: m.TrimInterval, Retention: m.Retention,
			Me:      meta.Manager{Name: m.Name, Addr: m.Advertise, HTTP: m.HTTP, PID: os.Getpid()},
			Cluster: meta.Cluster{ID: hex.EncodeToString(id), Log: m.Sequencers},
		}), nil
	}, func(r *prometheus.Registry, ro role) func() error {
		s := ro.(*server.Server)
		probe.Gauges(r, "tailrace_manager_", func() map[string]float64 {
			st := s.Status()
			n := map[string]float64{"leads": 0, "jobs": float64(len(st.Jobs)), "workers": float64(len(st.Workers)), "tasks_waiting": 0, "tasks_placed": 0, "tasks_resting": 0}
			if s.Leads() {
				n["leads"] = 1
			}
			for _, j := range st.Jobs {
				for _, t := range j.Tasks {
					n["tasks_"+t.State]++
				}
			}
			return n
		})
		probe.Labelled(r, "tailrace_", []string{"job", "stage"}, func(emit func(string, float64, ...string)) {
			balanceMetrics(s.Status().Jobs, emit)
		})
		return func() error { return nil }
	})
}

// balanceMetrics emits what the leading manager has measured of the stages that it balances.
func balanceMetrics(jobs []manager.JobStatus, emit func(name string, v float64, labels ...string)) {
	for i := range jobs {
		for k := range jobs[i].Balanced {
			b := &jobs[i].Balanced[k]
			for name, v := range b.Metrics() {
				emit(name, v, jobs[i].Name, b.Stage)
			}
		}
	}
}
