package runtime

import (
	"context"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/lead"
	"tailrace.dev/tailrace/tasks/status"
)

// appender appends a task's groups, in order and by one writer, and knows which of them are
// acknowledged.
type appender struct {
	writer   *sharedlog.Writer
	instance uint64 // whose writer it is
	limit    int    // of unacknowledged groups
	status   *status.Status
	resulted func() // called when a commit that has output, or follows output, is acknowledged

	inflight []flight
	appends  uint64
	results  bool          // output has been appended
	ahead    []lead.Output // by output
}

// flight is an append in flight.
type flight struct {
	pending *sharedlog.Pending
	commits bool
	results bool                     // this append or an earlier one has output
	landed  []func(at sharedlog.LSN) // Engine.Landed
	records int
	number  uint64 // number of the append
}

// append starts the append of one group. If too many are in flight, it waits first.
func (a *appender) append(ctx context.Context, records []sharedlog.Record, commits bool) error {
	for len(a.inflight) >= a.limit {
		if err := a.landed(ctx); err != nil {
			return err
		}
	}
	a.appends++
	a.inflight = append(a.inflight, flight{
		pending: a.writer.Append(records...), commits: commits, results: a.results, records: len(records), number: a.appends,
	})
	a.status.Groups.Add(1)
	return nil
}

// landed waits for the oldest append in flight.
func (a *appender) landed(ctx context.Context) error {
	f := a.inflight[0]
	first, err := f.pending.Wait(ctx)
	if err != nil {
		return Refused(err, a.instance)
	}
	last := first + sharedlog.LSN(f.records-1)
	for _, landed := range f.landed {
		landed(last)
	}
	for i := range a.ahead {
		a.ahead[i].Landed(f.number, last)
	}
	if f.commits && f.results {
		a.resulted()
	}
	n := copy(a.inflight, a.inflight[1:])
	a.inflight[n] = flight{}
	a.inflight = a.inflight[:n]
	return nil
}

// collect handles the outcomes that are known by now.
func (a *appender) collect() error {
	for i := range a.ahead {
		a.ahead[i].Look()
	}
	for len(a.inflight) > 0 {
		select {
		case <-a.inflight[0].pending.Done():
			if err := a.landed(context.Background()); err != nil { // does not wait
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// acknowledged waits until everything appended is acknowledged.
func (a *appender) acknowledged(ctx context.Context) error {
	for len(a.inflight) > 0 {
		if err := a.landed(ctx); err != nil {
			return err
		}
	}
	return nil
}

// committed records that a commit has taken effect.
func (a *appender) committed() {
	if a.results {
		a.resulted()
	}
}

// oldest is ready when the oldest append in flight has been decided.
func (a *appender) oldest() <-chan struct{} {
	if len(a.inflight) == 0 {
		return nil
	}
	return a.inflight[0].pending.Done()
}

// producesNoMore subtracts the instance's output from its job's lead.
func (a *appender) producesNoMore() {
	for i := range a.ahead {
		a.ahead[i].End()
	}
}
