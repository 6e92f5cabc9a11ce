package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// links are the connections through which a command submits and observes jobs of a cluster.
type links struct {
	log    sharedlog.Log
	store  *meta.Store
	dialer transport.Dialer
}

func (e *engine) needCluster() error {
	if !e.remote() {
		return usagef("--submit: to which cluster? give --log with the addresses of its sequencers")
	}
	return nil
}

// connect connects to the cluster of --log. The returned function closes the connections.
func (e *engine) connect(ctx context.Context) (l *links, closeAll func() error, err error) {
	log, closeLog, err := e.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	try, cancel := context.WithTimeout(ctx, e.wait)
	defer cancel()
	store, err := meta.Connect(try, log, meta.Options{Cluster: e.transport.Cluster, TLS: e.transport.TLS})
	if err != nil {
		return nil, nil, errors.Join(err, closeLog())
	}
	d, err := transport.NewDialer(e.transport)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close(), closeLog())
	}
	return &links{log, store, d}, func() error { return errors.Join(d.Close(), store.Close(), closeLog()) }, nil
}

// statuses asks the workers for the status of a job's tasks. whole reports that all tasks are
// running and have answered; otherwise why says what is missing.
func (l *links) statuses(ctx context.Context, job string) (all []tasks.Status, whole bool, why string, err error) {
	o, err := jobs.Look(ctx, l.store, l.dialer)
	if err != nil {
		return nil, false, "", err
	}
	for _, j := range o.Jobs() {
		if j.Name != job {
			continue
		}
		all, whole = j.Statuses(), len(j.Tasks) > 0
		why = fmt.Sprintf("%s, %d of its %d tasks run", j.Phase, j.Running, len(j.Tasks))
		for _, t := range j.Tasks {
			whole = whole && t.Status != nil && t.Status.Status.Instance > 0
			if t.Why != "" {
				why += fmt.Sprintf("; %s/%d: %s", t.Stage, t.Task, t.Why)
			}
		}
		return all, whole, why, nil
	}
	return nil, false, "it is gone", nil
}

// whole polls until all tasks have answered.
func (l *links) whole(ctx context.Context, job string, patience time.Duration) ([]tasks.Status, error) {
	limit := time.Now().Add(patience)
	for {
		all, whole, why, err := l.statuses(ctx, job)
		if err == nil && whole {
			return all, nil
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("job %s after %v: %s; see tailrace job describe, and whether there are workers for it", job, patience, why), err, ctx.Err())
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// benchSubmitted measures a query that the cluster's workers run. It stops and deletes the job at
// the end.
func (e *engine) benchSubmitted(ctx context.Context, s driver.BenchSettings) (err error) {
	switch {
	case s.Max:
		return usagef("--submit --rate max: a source on workers does not wait for the query, so it would only fill the log; give a rate")
	case s.Profile != nil:
		return usagef("--submit --profile: the work is done by other processes")
	}
	if err := e.needCluster(); err != nil {
		return err
	}
	s.Lead = 0
	if s.Job == "" {
		s.Job = fmt.Sprintf("bench-%s-%08x", s.Workload, rand.Uint32())
	}
	l, closeAll, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	r, err := driver.NewRemote(s)
	if err != nil {
		return err
	}
	spec, err := r.Spec()
	if err != nil {
		return err
	}
	// Remove the job even if the submission was interrupted.
	defer func() { err = errors.Join(err, l.remove(spec.Name)) }()
	accept, cancel := context.WithTimeout(ctx, e.wait)
	_, err = jobs.Submit(accept, l.store, spec)
	cancel()
	if err == nil {
		_, err = l.whole(ctx, spec.Name, e.wait)
	}
	var report *driver.Report
	if err == nil {
		report, err = e.watchRemote(ctx, l, r, spec.Name, s)
	}
	if err == nil {
		err = l.placed(ctx, spec, report)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	if !e.quiet {
		printReport(os.Stderr, report)
	}
	if e.json == "" {
		return nil
	}
	return writeTo(e.json, func(w io.Writer) error { return json.NewEncoder(w).Encode(report) })
}

// placed adds to a report how much of what the tasks have exchanged went to another worker.
func (l *links) placed(ctx context.Context, spec *tasks.Spec, r *driver.Report) error {
	v, err := l.store.Look(ctx)
	if err != nil {
		return err
	}
	id := v.States[spec.Name].ID
	present, err := spec.Present(ctx, l.log, id)
	if err != nil {
		return err
	}
	var byWorker [][]tasks.Status
	for _, w := range v.Workers {
		byWorker = append(byWorker, jobs.Loads(ctx, l.dialer, []string{w.Addr}, spec.Name, id))
	}
	r.Exchange.Placed(present, byWorker)
	return nil
}

// watchRemote reads the rows through warm-up and measurement.
func (e *engine) watchRemote(ctx context.Context, l *links, r *driver.Remote, job string, s driver.BenchSettings) (*driver.Report, error) {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	read := make(chan error, 1)
	go func() { read <- r.Read(reading, l.log) }()
	line, show := e.status()
	defer line.clear()
	begin := time.Now()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	until := func(at time.Time) error {
		end := time.NewTimer(time.Until(at))
		defer end.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-read:
				return err
			case <-end.C:
				return nil
			case <-tick.C:
				if show == nil {
					continue
				}
				if all, _, _, err := l.statuses(ctx, job); err == nil {
					live := driver.LiveOf(all, time.Since(begin))
					live.Latency = r.Median()
					show(live)
				}
			}
		}
	}
	if err := until(r.Warm()); err != nil {
		return nil, err
	}
	from, err := l.whole(ctx, job, e.wait)
	if err != nil {
		return nil, err
	}
	r.Begin(from)
	end := time.Now().Add(s.Duration)
	var lost lostWorker
	if s.FailAt > 0 {
		if err := until(time.Now().Add(s.FailAt)); err != nil {
			return nil, err
		}
		if lost, err = l.kill(ctx, job, s.FailStage); err != nil {
			return nil, err
		}
	}
	if err := until(end); err != nil {
		return nil, err
	}
	to, err := l.whole(ctx, job, e.wait)
	if err != nil {
		return nil, err
	}
	if s.FailAt == 0 {
		return r.Report(to)
	}
	came, err := l.recovered(ctx, job, lost)
	if err != nil {
		return nil, err
	}
	return r.ReportRecovery(to, came), nil
}

// remove stops and deletes a job even if the command's context has ended: otherwise the workers
// would continue to run it.
func (l *links) remove(job string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	v, err := l.store.Look(ctx)
	if _, there := v.Jobs[job]; err == nil && !there {
		return nil
	}
	if err == nil && v.States[job].Phase != meta.Finished {
		err = jobs.Stop(ctx, l.store, job)
	}
	if err == nil {
		err = jobs.Delete(ctx, l.store, l.log, job)
	}
	if err != nil {
		return fmt.Errorf("job %s could not be removed, and may continue for a minute: %w; tailrace job stop and delete do it", job, err)
	}
	return nil
}
