package handover

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/tags"
)

// Follow implements runtime.Handover. A task that reads no source learns of a plan by its input, too, later if
// it is behind: what Follow makes earlier is an early release, and how producers pack their records. One that
// reads a source learns of plans by Follow only. It begins with the newest: by an older one no task has anything to do.
func (h *Handover) Follow(ctx context.Context) (err error) {
	job := h.cfg.Layout.Job
	tail, err := h.cfg.Log.Tail(ctx)
	if err != nil {
		return err
	}
	newest, at, err := records.LastPlan(ctx, h.cfg.Log, job, tail)
	if err != nil || newest == nil {
		return err
	}
	if err := h.learn(newest, at); err != nil {
		return err
	}
	r, err := h.cfg.Log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tags.Control(job)}, From: tail, BelowFloor: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		b, err := r.Next(ctx)
		if err != nil {
			return fmt.Errorf("read the plans of job %q: %w", job, err)
		}
		for i := range b.Entries {
			p := new(envelope.Plan)
			if err := p.Parse(b.Entries[i].Data); err != nil {
				return fmt.Errorf("the plan of job %q at LSN %d: %w", job, b.Entries[i].LSN, err)
			}
			if err := h.learn(p, b.Entries[i].LSN); err != nil {
				return err
			}
		}
	}
}

// learn handles a plan that another process has appended.
func (h *Handover) learn(p *envelope.Plan, at sharedlog.LSN) error {
	l, err := presentOf(h.cfg.Layout, p)
	if err != nil {
		return err
	}
	h.cfg.SetPresent(l)
	h.tell(p, at)
	return nil
}
