// Package appends appends a task's groups to the log, in order and by one writer, and knows which of
// them are acknowledged.
package appends

import (
	"context"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/lead"
	"tailrace.dev/tailrace/tasks/status"
)

// Appender appends groups. It is not safe for concurrent use.
type Appender struct {
	Writer   *sharedlog.Writer
	Limit    int                   // of unacknowledged groups; at least 1
	Refused  func(err error) error // the error of an append that the log has refused
	Status   *status.Status        // counts groups
	Resulted func()                // called when a commit that has output, or follows output, is acknowledged

	Results bool          // output has been appended
	Ahead   []lead.Output // by output
	Appends uint64        // how many there were

	inflight []flight
}

// flight is an append in flight.
type flight struct {
	pending *sharedlog.Pending
	commits bool
	results bool // this append or an earlier one has output
	landed  []func(at sharedlog.LSN)
	records int
	number  uint64 // number of the append
}

// Append starts the append of one group. If too many are in flight, it waits first.
func (a *Appender) Append(ctx context.Context, records []sharedlog.Record, commits bool) error {
	for len(a.inflight) >= a.Limit {
		if err := a.landed(ctx); err != nil {
			return err
		}
	}
	a.Appends++
	a.inflight = append(a.inflight, flight{
		pending: a.Writer.Append(records...), commits: commits, results: a.Results, records: len(records), number: a.Appends,
	})
	a.Status.Groups.Add(1)
	return nil
}

// landed waits for the oldest append in flight.
func (a *Appender) landed(ctx context.Context) error {
	f := a.inflight[0]
	first, err := f.pending.Wait(ctx)
	if err != nil {
		return a.Refused(err)
	}
	last := first + sharedlog.LSN(f.records-1)
	for _, landed := range f.landed {
		landed(last)
	}
	for i := range a.Ahead {
		a.Ahead[i].Landed(f.number, last)
	}
	if f.commits && f.results {
		a.Resulted()
	}
	n := copy(a.inflight, a.inflight[1:])
	a.inflight[n] = flight{}
	a.inflight = a.inflight[:n]
	return nil
}

// Collect handles the outcomes that are known by now.
func (a *Appender) Collect() error {
	for i := range a.Ahead {
		a.Ahead[i].Look()
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

// Acknowledged waits until everything appended is acknowledged.
func (a *Appender) Acknowledged(ctx context.Context) error {
	for len(a.inflight) > 0 {
		if err := a.landed(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Committed records that a commit has taken effect.
func (a *Appender) Committed() {
	if a.Results {
		a.Resulted()
	}
}

// Oldest is ready when the oldest append in flight has been decided.
func (a *Appender) Oldest() <-chan struct{} {
	if len(a.inflight) == 0 {
		return nil
	}
	return a.inflight[0].pending.Done()
}

// ProducesNoMore subtracts the instance's output from its job's lead.
func (a *Appender) ProducesNoMore() {
	for i := range a.Ahead {
		a.Ahead[i].End()
	}
}

// Landed arranges a call when the newest append in flight is acknowledged, with the LSN of its last
// record. Append has been called, and nothing has waited since.
func (a *Appender) Landed(f func(at sharedlog.LSN)) {
	newest := &a.inflight[len(a.inflight)-1]
	newest.landed = append(newest.landed, f)
}
