package server

import (
	"context"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/status"
)

// The leading manager replaces routing tables as it moves key groups: a request is in etcd until it has an outcome, and the plans
// that are steps of it have its number (docs/adr/0084).

// tables returns the requests for routing tables of a job that have no outcome.
func (r *term) tables(name string) []meta.Reroute {
	st := r.states[name]
	return slices.DeleteFunc(slices.Clone(r.jobs[name].Reroute), func(a meta.Reroute) bool { return st.HasRerouted(&a) })
}

// wanted returns what the requests of a drive for routing tables ask for. One that says nothing that can be read has its
// outcome at once: tried again, it would be the same.
func (r *term) wanted(d *drive, tell func(func())) (all open[tasks.Reroute]) {
	var p rescale.Progress
	for i := range d.tables {
		q, err := d.tables[i].Request()
		if err != nil {
			p.Rerouted = append(p.Rerouted, rescale.Outcome{Request: i, Error: err.Error()})
			continue
		}
		all.add(i, q)
	}
	if len(p.Rerouted) > 0 {
		tell(func() {
			if r.drives[d.name] == d {
				r.rerouted(d, &p)
			}
		})
	}
	return all
}

// rerouted notes the outcomes of requests for routing tables, to be written.
func (r *term) rerouted(d *drive, p *rescale.Progress) {
	st := r.states[d.name]
	for _, o := range p.Rerouted {
		a := &d.tables[o.Request]
		if st.HasRerouted(a) {
			continue
		}
		out := meta.Rerouted{Rescaled: o.Result, Number: a.Number, Epoch: p.Epoch, Error: o.Error}
		out.Stage = a.Stage
		r.say(d.name, "stage "+a.Stage+": "+out.String())
		st.Rerouted = append(slices.DeleteFunc(slices.Clone(st.Rerouted), func(old meta.Rerouted) bool { return old.Stage == a.Stage }), out)
		r.changed[d.name] = true
	}
	r.states[d.name] = st
}

// Table implements balance.Router.
func (b *balancer) Table(stage int) (*routing.Table, error) {
	if b.spec.Slots == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	return b.spec.Table(ctx, b.server.opt.Log, b.id, stage)
}

// Reroute implements balance.Router. If this manager is deposed, the next one carries out the request.
func (b *balancer) Reroute(ctx context.Context, q routing.Reroute) error {
	was, err := b.Table(b.index())
	if err == nil && (was == nil || q.Changed(was)) {
		err = fmt.Errorf("job %q: %w", b.job, rescale.ErrChanged)
	}
	if err != nil {
		return err
	}
	number, err := jobs.Reroute(ctx, b.server.opt.Store, b.job, q, was)
	if err != nil {
		return err
	}
	_, err = jobs.AwaitReroute(ctx, b.server.opt.Store, b.job, number)
	b.read(ctx)
	return b.kind(err)
}

// Status implements balance.Job: it asks for samples of keys if there are some.
func (b *balancer) Status() []status.Snapshot {
	if b.spec.Slots == 0 {
		return b.scaler.Status()
	}
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	b.read(ctx)
	return jobs.Samples(ctx, b.server.opt.Dialer, *b.workers.Load(), b.job, b.id)
}
