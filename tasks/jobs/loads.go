package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/balance"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/status"
)

// Loads asks the workers at these addresses, all at once, what the tasks of a job measure: the status of
// each with its loads by key group. A worker that does not answer contributes nothing.
func Loads(ctx context.Context, d transport.Dialer, addrs []string, job, id string) []tasks.Status {
	return ask(ctx, d, addrs, "worker/load", job, id)
}

// Samples is Loads with samples of the keys of streams with slots. They fade from one time that they are asked for to the next, so
// the first ones are of no use if nothing has asked for long.
func Samples(ctx context.Context, d transport.Dialer, addrs []string, job, id string) []tasks.Status {
	return ask(ctx, d, addrs, "worker/samples", job, id)
}

// Measured asks, as Loads does, how far the items of those stages were out of order whose grain is chosen (WatermarkPer(Auto)). It
// returns nothing of other stages, and nothing else.
func Measured(ctx context.Context, d transport.Dialer, addrs []string, job, id string) []tasks.Status {
	return ask(ctx, d, addrs, "worker/measured", job, id)
}

func ask(ctx context.Context, d transport.Dialer, addrs []string, what, job, id string) []tasks.Status {
	var mu sync.Mutex
	var wg sync.WaitGroup
	newest := newestOf{}
	for _, addr := range addrs {
		wg.Go(func() {
			var all []autoscale.Reading
			if transport.AskJSON(ctx, d, addr, what, &all) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			newest.add(job, id, all)
		})
	}
	wg.Wait()
	return slices.Collect(maps.Values(newest))
}

// taskOf names a task of a job.
type taskOf struct {
	stage string
	task  int
}

// newestOf is what is known of the tasks of a job.
type newestOf map[taskOf]status.Snapshot

// add adds what a worker tells. A task of which two workers tell has just changed its worker: the newer
// instance counts.
func (n newestOf) add(job, id string, all []autoscale.Reading) {
	for i := range all {
		r := &all[i]
		k := taskOf{r.Status.Stage, r.Status.Task}
		have, ok := n[k]
		if r.Job == job && r.ID == id && (!ok || have.Instance < r.Status.Instance) {
			n[k] = r.Snapshot()
		}
	}
}

// PreviewBalance measures for a while what comes for the key groups of a stage, and returns what
// balancing would make of it. It changes nothing, in the log or in etcd; what the job's settings do
// not allow is refused.
func PreviewBalance(ctx context.Context, store *meta.Store, d transport.Dialer, log sharedlog.Log, name string, b tasks.Balance, measure time.Duration) (*balance.Preview, error) {
	v, err := store.Look(ctx)
	if err != nil {
		return nil, err
	}
	if err := allowed(&v, name, &b); err != nil {
		return nil, err
	}
	job, id := v.Jobs[name], v.States[name].ID
	if id == "" {
		return nil, fmt.Errorf("job %q has not run yet", name)
	}
	o := &Overview{View: v}
	addrs := slices.Collect(maps.Keys(o.addresses()))
	read := Loads
	if job.Spec.Slots > 0 {
		read = Samples // those of the first reading are older; with it they begin to fade
	}
	begin, from := time.Now(), read(ctx, d, addrs, name, id)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(measure):
	}
	to := read(ctx, d, addrs, name, id)
	took := time.Since(begin)
	l, err := job.Spec.Routed(ctx, log, id)
	if err != nil {
		return nil, fmt.Errorf("job %q: the owners of its key groups: %w", name, err)
	}
	for i := range l.Plan.Stages {
		if l.Plan.Stages[i].Name == b.Stage {
			p, err := balance.Look(b, l.Layout, i, l.Tables[i], from, to)
			if err != nil {
				return nil, fmt.Errorf("job %q: %w", name, err)
			}
			p.Seconds = took.Seconds()
			return p, nil
		}
	}
	return nil, fmt.Errorf("job %q has no stage %q", name, b.Stage)
}
