package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tailrace.dev/tailrace/internal/probe"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/joblog"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/runtime"
)

// leaveIn is how long tasks may take to commit and end when the worker leaves.
const leaveIn = 5 * time.Second

// worker is the process. Its mutex guards the fields below it.
type worker struct {
	opt   Options
	me    meta.Worker
	log   sharedlog.Log
	store *meta.Store
	peers *peers
	// checkpoints is where snapshots go, nil: nowhere.
	checkpoints checkpoint.Store
	entries     joblog.Ring
	run         sync.WaitGroup // tasks

	mu          sync.Mutex
	tasks       map[meta.TaskKey]*assigned
	standby     map[meta.TaskKey]*standby
	executors   map[string]*executor // by job id
	cluster     string               // the id of the etcd that this worker trusts
	etcd        error                // why it is not registered
	leaving     bool
	logAnswered time.Time // when the log answered last
	changed     chan struct{}
}

// Run runs the worker: it returns when ctx has ended and its tasks have committed, or when it could
// not start.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	if err := transport.Guard(o.Listen, o.TLS, o.Insecure); err != nil {
		return err
	}
	dialer, err := transport.NewDialer(transport.Options{Cluster: o.Cluster, TLS: o.TLS, LinkRate: o.LinkRate})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dialer.Close()) }()
	begin, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	log, err := client.Connect(begin, client.Options{Sequencers: o.Log, Dialer: dialer, Name: o.Name, QueueBytes: o.QueueBytes, Logger: o.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	store, err := connect(begin, log, &o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	checkpoints, err := openCheckpoints(begin, &o)
	if err != nil {
		return err
	}
	if checkpoints != nil {
		defer func() { err = errors.Join(err, checkpoints.Close()) }()
	}

	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen at %s: %w; give another --listen", o.Listen, err)
	}
	defer listener.Close()
	server, err := transport.NewServer(transport.Options{Cluster: o.Cluster, TLS: o.TLS})
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	w := &worker{
		opt: o, log: log, store: store, checkpoints: checkpoints, tasks: map[meta.TaskKey]*assigned{}, standby: map[meta.TaskKey]*standby{}, executors: map[string]*executor{},
		changed: make(chan struct{}), logAnswered: time.Now(), etcd: errors.New("it is being registered"),
		me: meta.Worker{
			Name: o.Name, Nonce: strconv.FormatUint(runtime.Nonce(), 16), Addr: o.Advertise, HTTP: o.HTTP, Host: host, PID: os.Getpid(),
			Format: tasks.Format, Version: o.Version, Program: o.Program, Stages: o.Stages, Jobs: o.Jobs, Labels: o.Labels, Tasks: o.Tasks,
		},
	}
	if w.me.Addr == "" {
		w.me.Addr = listener.Addr().String()
	}
	if err := w.unique(begin, dialer); err != nil {
		return err
	}
	server.Handle("worker/reports", w.serveReports)
	server.Handle("worker/status", transport.AnswerJSON(func() any { return w.status() }))
	server.Handle("worker/load", transport.AnswerJSON(func() any { return w.load(autoscale.NewReading) }))
	server.Handle("worker/samples", transport.AnswerJSON(func() any { return w.load(autoscale.NewSampled) }))
	server.Handle("worker/measured", transport.AnswerJSON(func() any { return measured(w.load(autoscale.NewMeasured)) }))
	w.peers = &peers{dialer, w.me.Addr}
	server.Handle(copiesStream, w.serveCopies)
	server.Handle("worker/words", transport.AnswerJSON(func() any { return w.entries.All() }))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer server.Stop()
	registry := probe.NewRegistry()
	w.gauges(registry)
	stopHTTP, err := probe.Serve(o.HTTP, registry, w.ready)
	if err != nil {
		return err
	}
	defer stopHTTP()
	o.Logger.Info("worker started", "worker", o.Name, "program", o.Program, "address", w.me.Addr, "http", o.HTTP, "version", o.Version)

	var wg sync.WaitGroup
	life, end := context.WithCancel(context.Background())
	wg.Go(func() { store.Stay(life, w.me, w.setEtcd) })
	wg.Go(func() { store.Follow(life, func(v meta.View) { w.assign(life, v) }, nil) })
	wg.Go(func() { w.watchLog(life) })
	select {
	case <-ctx.Done():
		o.Logger.Info("worker is leaving", "worker", o.Name)
		w.leave()
	case err = <-served:
	}
	end()
	wg.Wait() // first, because they start tasks
	w.run.Wait()
	return err
}

// connect opens the store. The manager that writes its addresses into the log may still be
// starting.
func connect(ctx context.Context, log sharedlog.Log, o *Options) (*meta.Store, error) {
	var none error
	for {
		store, err := meta.Connect(ctx, log, meta.Options{Endpoints: o.Etcd, Cluster: o.Cluster, TLS: o.TLS})
		switch {
		case errors.Is(err, meta.ErrNoManager):
			none = fmt.Errorf("log at %s: %w", strings.Join(o.Log, ","), err)
		case err != nil && none != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("%w; asked once more: %w", none, err)
		default:
			return store, err
		}
		select {
		case <-ctx.Done():
			return nil, none
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// openCheckpoints opens the store of snapshots, which need not be available yet: running tasks do
// not need it.
func openCheckpoints(ctx context.Context, o *Options) (checkpoint.Store, error) {
	if o.Checkpoints == "" {
		return nil, nil
	}
	config, err := o.TLS.Maybe()
	if err != nil {
		return nil, err
	}
	s, err := checkpoint.OpenRedis(ctx, checkpoint.RedisOptions{URL: o.Checkpoints, TLS: config, Lazy: true, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("--checkpoints: %w", err)
	}
	return s, nil
}

// unique refuses a name that another live worker has.
func (w *worker) unique(ctx context.Context, d transport.Dialer) error {
	v, err := w.store.Look(ctx)
	if err != nil {
		return err
	}
	other, ok := v.Workers[w.me.Name]
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var s Status
	if err := transport.AskJSON(ctx, d, other.Addr, "worker/status", &s); err != nil || s.Worker.Name != w.me.Name {
		return nil // it is gone, but its lease has not expired
	}
	return fmt.Errorf("a worker named %s runs at %s (process %d on %s): give this one another --name", w.me.Name, other.Addr, other.PID, other.Host)
}

func (w *worker) setEtcd(err error) {
	w.mu.Lock()
	was := w.etcd
	w.etcd = err
	w.mu.Unlock()
	switch {
	case err == nil:
		w.opt.Logger.Info("registered", "worker", w.me.Name)
	case was == nil:
		w.opt.Logger.Warn("lost the registration in etcd; running tasks continue", "worker", w.me.Name, "error", err)
	}
}

// ready returns why the worker cannot accept tasks.
func (w *worker) ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.leaving:
		return errors.New("it is leaving")
	case w.etcd != nil:
		return fmt.Errorf("not registered in etcd: %w", w.etcd)
	case w.silence() > 2*time.Second:
		return fmt.Errorf("the log has not answered for %v", w.silence().Round(time.Millisecond))
	}
	return nil
}

// silence returns for how long the log has not answered. The caller holds w.mu.
func (w *worker) silence() time.Duration { return time.Since(w.logAnswered) }

// watchLog repeatedly asks the log for its tail, to know whether it is reachable.
func (w *worker) watchLog(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := w.log.Tail(try)
		cancel()
		if err == nil {
			w.mu.Lock()
			w.logAnswered = time.Now()
			w.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// leave lets all tasks commit and end, and reports that to the manager.
func (w *worker) leave() {
	w.mu.Lock()
	w.leaving = true
	var all []*assigned
	for _, a := range w.tasks {
		a.stop()
		all = append(all, a)
	}
	w.standBy(context.Background(), nil)
	w.say()
	w.mu.Unlock()
	end := time.NewTimer(leaveIn)
	defer end.Stop()
	for _, a := range all {
		select {
		case <-a.done:
		case <-end.C:
			for _, a := range all {
				a.kill()
			}
			return
		}
	}
}

// say wakes the goroutines that send reports. The caller holds w.mu.
func (w *worker) say() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// serveReports sends a manager a report at once when something changes, and ten times a second
// otherwise.
func (w *worker) serveReports(st transport.Stream) error {
	for {
		r, changed := w.report()
		if err := transport.SendJSON(st, r); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		case <-st.Context().Done():
			return nil
		}
	}
}

func (w *worker) report() (manager.Report, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := manager.Report{Worker: w.me.Name, Nonce: w.me.Nonce, Leaving: w.leaving}
	if s := w.silence(); s > time.Second {
		r.LogSilent = s.Milliseconds()
	}
	for _, a := range w.tasks {
		t := a.report
		if a.running != nil {
			t.Instance = a.running.Instance()
		}
		r.Tasks = append(r.Tasks, t)
	}
	r.Standbys = w.standbys()
	return r, w.changed
}

// standbys lists the warm copies. The caller holds w.mu.
func (w *worker) standbys() (all []manager.TaskReport) {
	for key, s := range w.standby {
		all = append(all, manager.TaskReport{Job: key.Job, ID: s.id, Stage: key.Stage, Task: key.Task})
	}
	return all
}

// Status is a worker's answer to a request for its status.
type Status struct {
	Worker meta.Worker `json:"worker"`
	// Trouble: why it is not registered; LogSilentMS: for how long the log has been silent.
	Trouble     string       `json:"trouble,omitempty"`
	LogSilentMS int64        `json:"log_silent_ms"`
	Tasks       []TaskStatus `json:"tasks"`
	// Standbys are the tasks of which it has a warm copy.
	Standbys []manager.TaskReport `json:"standbys,omitempty"`
}

// TaskStatus is one task of a Status.
type TaskStatus struct {
	Report manager.TaskReport `json:"report"`
	// Status is empty until the task has started.
	Status tasks.Status `json:"status"`
	// Behind is how many LSNs lie between the task's position and the log's tail; 0 if it has read
	// everything that is for it.
	Behind uint64 `json:"behind_records"`
}

func (w *worker) status() Status {
	tail := w.log.Stats().Tail
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Status{Worker: w.me, LogSilentMS: w.silence().Milliseconds(), Standbys: w.standbys()}
	if w.etcd != nil {
		s.Trouble = w.etcd.Error()
	}
	for _, a := range w.tasks {
		ts := TaskStatus{Report: a.report}
		if a.running != nil {
			ts.Status = a.running.Status()
			if st := &ts.Status; !st.CaughtUp && st.Position > 0 && !st.Ended {
				ts.Behind = uint64(tail - min(tail, st.Position))
			}
		}
		s.Tasks = append(s.Tasks, ts)
	}
	return s
}

// measured returns the readings of tasks whose grain is chosen.
func measured(all []autoscale.Reading) []autoscale.Reading {
	return slices.DeleteFunc(all, func(r autoscale.Reading) bool { return r.Measured == nil })
}

// load returns what those measure that autoscale or balance stages.
func (w *worker) load(read func(job, id string, s tasks.Status) autoscale.Reading) []autoscale.Reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]autoscale.Reading, 0, len(w.tasks))
	for _, a := range w.tasks {
		if a.running != nil {
			all = append(all, read(a.report.Job, a.report.ID, a.running.Status()))
		}
	}
	return all
}

func (w *worker) gauges(r *prometheus.Registry) {
	probe.Gauges(r, "tailrace_worker_", func() map[string]float64 {
		s := w.status()
		registered := 1.0
		if s.Trouble != "" {
			registered = 0
		}
		return map[string]float64{"registered": registered, "tasks": float64(len(s.Tasks)), "log_silent_seconds": float64(s.LogSilentMS) / 1000}
	})
	r.MustRegister(userMetrics{w})
	probe.Labelled(r, "tailrace_task_", []string{"job", "stage", "task"}, func(emit func(string, float64, ...string)) {
		for _, ts := range w.status().Tasks {
			t := &ts.Status
			if t.Stage == "" {
				continue // it has not started
			}
			at := []string{ts.Report.Job, t.Stage, strconv.Itoa(t.Task)}
			for name, v := range map[string]float64{
				"instance": float64(t.Instance), "items_in_total": float64(t.ItemsIn), "items_out_total": float64(t.ItemsOut),
				"bytes_in_total": float64(t.BytesIn), "bytes_out_total": float64(t.BytesOut), "commits_total": float64(t.Commits),
				"late_total": float64(t.Late), "skipped_total": float64(t.Skipped), "watermark_ms": float64(t.Watermark), "position_lsn": float64(t.Position),
				"state_keys": float64(t.StateKeys), "key_groups": float64(t.KeyGroups), "state_bytes": float64(t.StateBytes), "held_bytes": float64(t.HeldBytes), "behind_records": float64(ts.Behind), "latency_p50_ms": float64(t.LatencyP50), "latency_p99_ms": float64(t.LatencyP99),
			} {
				emit(name, v, at...)
			}
			m := cmp.Or(t.Moved, new(tasks.Moved))
			emit("groups_taken_total", float64(m.Given+m.Copied+m.Fetched+m.Restored), at...)
			emit("groups_restored_total", float64(m.Restored), at...)
			emit("sub_groups_demanded_total", float64(m.Demand.SubGroups), at...)
			emit("state_fetched_bytes_total", float64(m.Bytes), at...)
			emit("records_waited_total", float64(m.Waits.Total()), at...)
			if s := t.Snapshots; s != nil {
				emit("snapshots_total", float64(s.Made), at...)
				if !s.Time.IsZero() {
					emit("snapshot_age_seconds", time.Since(s.Time).Seconds(), at...)
				}
			}
		}
	})
}
