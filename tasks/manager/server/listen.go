package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
)

// listen keeps a stream of reports from each worker that the core watches.
func (r *term) listen(ctx context.Context, tell func(func()), wg *sync.WaitGroup) {
	wanted := map[string]bool{}
	for _, addr := range r.core.Watch() {
		wanted[addr] = true
		if r.streams[addr] != nil {
			continue
		}
		stream, cancel := context.WithCancel(ctx)
		r.streams[addr] = cancel
		wg.Go(func() { r.receive(stream, addr, tell) })
	}
	for addr, cancel := range r.streams {
		if !wanted[addr] {
			cancel()
			delete(r.streams, addr)
		}
	}
}

// receive follows the reports from one address, and tells the core when the connection is lost.
func (r *term) receive(ctx context.Context, addr string, tell func(func())) {
	for ctx.Err() == nil {
		err := r.reports(ctx, addr, tell)
		if ctx.Err() != nil {
			return
		}
		refused := connectionRefused(ctx, addr)
		r.opt.Logger.Debug("a worker sends no reports", "address", addr, "refused", refused, "error", err)
		tell(func() { r.core.Lost(now(), addr, refused) })
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *term) reports(ctx context.Context, addr string, tell func(func())) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := r.opt.Dialer.Open(ctx, addr, "worker/reports")
	if err != nil {
		return err
	}
	for {
		var report manager.Report
		if err := transport.RecvJSON(st, &report); err != nil {
			return err
		}
		tell(func() { r.core.Reported(now(), addr, report) })
	}
}

// connectionRefused distinguishes a process that has ended from one that cannot be reached: if it
// has ended, the kernel of its host refuses the connection.
func connectionRefused(ctx context.Context, addr string) bool {
	d := net.Dialer{Timeout: 300 * time.Millisecond}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// register registers a job in the log: its id, plan, producers. It retries until the log accepts
// the job or refuses it for good.
func (r *term) register(ctx context.Context, name string, j meta.Job, tell func(func())) {
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		id, attempt, err := "", uint64(0), j.Spec.CheckFrom(try, r.opt.Log, r.opt.Checkpoints)
		if err == nil {
			id, err = tasks.Register(try, r.opt.Log, r.opt.Checkpoints, j.Spec)
		}
		if err == nil {
			attempt, err = tasks.NewestAttempt(try, r.opt.Log, id)
		}
		var p newestPlan
		if err == nil {
			p, err = r.newestPlan(try, id)
		}
		cancel()
		switch {
		case err == nil:
			tell(func() {
				st := r.states[name]
				st.ID = id
				r.states[name] = st
				r.planned(name, &p)
				r.core.Registered(now(), name, id, int(attempt), "")
			})
			return
		case final(err):
			tell(func() { r.core.Registered(now(), name, "", 0, err.Error()) })
			return
		case ctx.Err() != nil:
			return
		}
		r.opt.Logger.Warn("cannot register a job in the log; trying again", "job", name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// final reports whether an error of Register is about the job, not about the log, or the store that has the savepoint to begin from.
func final(err error) bool {
	switch sharedlog.KindOf(err) {
	case sharedlog.KindInvalid, sharedlog.KindVersion, sharedlog.KindCorrupt:
		return true
	case sharedlog.KindOther:
		return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !errors.Is(err, transport.ErrUnavailable) && !errors.Is(err, checkpoint.ErrUnavailable)
	}
	return errors.Is(err, tasks.ErrSettings)
}
