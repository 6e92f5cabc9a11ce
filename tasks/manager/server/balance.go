package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/balance"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// The leading manager balances stages of jobs on workers as one process does (package balance). It reads
// what the tasks measure, and puts requests into etcd, as it does to autoscale.

// balanced names a balancer: another request, or another job of that name, has another one.
type balanced struct {
	job, id string
	request string // JSON
}

// balancer balances one stage of a job. It implements balance.Job; the scaler is only how it reads and
// asks.
type balancer struct {
	scaler
	request  balance.Request
	balancer atomic.Pointer[balance.Balancer]
}

// balance starts and ends balancers, as the jobs in etcd ask for them.
func (r *term) balance(ctx context.Context, wg *sync.WaitGroup) {
	wanted, addrs := map[balanced]bool{}, r.addrs
	for name, j := range r.jobs {
		st := r.states[name]
		if !measures(&j, &st) {
			continue
		}
		for _, q := range j.Balance {
			text, err := json.Marshal(&q)
			if err != nil {
				continue // it was JSON
			}
			k := balanced{name, st.ID, string(text)}
			wanted[k] = true
			b := r.balancers[k]
			if b == nil {
				b = &balancer{request: q}
				b.scaled, b.server, b.spec = scaled{name, st.ID, autoscale.Request{Stage: q.Stage}}, r.Server, j.Spec
				r.balancers[k] = b
				var stage context.Context
				stage, b.cancel = context.WithCancel(ctx)
				wg.Go(func() { b.run(stage) })
			}
			b.busy.Store(r.drives[name] != nil || st.Phase != meta.Running)
			b.workers.Store(&addrs)
		}
	}
	for k, b := range r.balancers {
		if !wanted[k] {
			b.cancel()
			delete(r.balancers, k)
		}
	}
}

// run balances the stage until ctx ends.
func (b *balancer) run(ctx context.Context) {
	index := b.index()
	if index < 0 || !b.known(ctx) {
		return // jobs.Balance has refused it
	}
	of, err := balance.New(b, b.server.opt.Logger.With("job", b.job), index, b.request)
	if err != nil {
		b.server.opt.Logger.Warn("a stage is not balanced", "job", b.job, "stage", b.Stage, "error", err)
		return
	}
	b.balancer.Store(of)
	of.Run(ctx, nil) // the manager continues what was asked for
}

// byLoad returns requests, those without owners with the owners that what balances the stage has planned.
func (r *term) byLoad(job string, asked []meta.Rescale) []meta.Rescale {
	for k, b := range r.balancers {
		of := b.balancer.Load()
		if of == nil || k.job != job || k.id != r.states[job].ID {
			continue
		}
		for i := range asked {
			if a := &asked[i]; a.Stage == b.Stage {
				q := rescale.Request{Tasks: a.Tasks, Strategy: a.Strategy, Owners: a.Owners, Cancel: a.Cancel}.ByLoad(of.For)
				a.Strategy, a.Owners = q.Strategy, q.Owners
			}
		}
	}
	return asked
}

// Rescale implements balance.Job.
func (b *balancer) Rescale(ctx context.Context, q rescale.Request) (*rescale.Result, error) {
	done, err := b.scaler.Rescale(ctx, q)
	return done, b.kind(err)
}

// kind returns the error of a request as one of those that a balancer knows, if it is.
func (b *balancer) kind(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{rescale.ErrChanged, rescale.ErrStageEnded} {
		if strings.Contains(err.Error(), known.Error()) { // etcd has its text
			err = fmt.Errorf("job %q: %w", b.job, known)
		}
	}
	return err
}

// balanced says how the stages of a job are balanced, a sentence for each, and returns what was measured and done.
func (r *term) balanced(job string) (text []string, all []balance.State) {
	for k, b := range r.balancers {
		if k.job != job {
			continue
		}
		about := fmt.Sprintf("balance %s %s: ", b.Stage, b.request.Dispatch)
		if of := b.balancer.Load(); of == nil {
			about += "the job's plan has not been read yet"
		} else {
			about += of.String()
			all = append(all, of.State())
		}
		text = append(text, about)
	}
	slices.Sort(text)
	slices.SortFunc(all, func(a, b balance.State) int { return cmp.Compare(a.Stage, b.Stage) })
	return text, all
}
