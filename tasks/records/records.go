// Package records reads single records of a job from its log: what a restart, a reader or a trimmer
// begins with.
package records

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/tags"
)

// LastMarker returns the newest marker of a task below a place; nil if there is none.
func LastMarker(ctx context.Context, log sharedlog.Log, job, stage string, task int, below sharedlog.LSN) (*envelope.Marker, sharedlog.LSN, error) {
	e, ok, err := log.Last(ctx, tags.Task(job, stage, task), below)
	if err != nil || !ok {
		return nil, 0, err
	}
	m := new(envelope.Marker)
	if err := m.Parse(e.Data); err != nil {
		return nil, 0, fmt.Errorf("marker at LSN %d: %w", e.LSN, err)
	}
	return m, e.LSN, nil
}

// MarkerOf is LastMarker for a task whose stage is known by its index, too. It fails if the marker is
// of another task: then the job's stages have changed.
func MarkerOf(ctx context.Context, log sharedlog.Log, job, stage string, index, task int, below sharedlog.LSN) (*envelope.Marker, sharedlog.LSN, error) {
	m, at, err := LastMarker(ctx, log, job, stage, task, below)
	if m != nil && (int(m.Stage) != index || int(m.Task) != task) {
		return nil, 0, fmt.Errorf("marker at LSN %d is of task %d/%d: the job's stages have changed", at, m.Stage, m.Task)
	}
	return m, at, err
}

// LastPlan returns the newest plan of a job below a place and the LSN of its record; nil if there is
// none.
func LastPlan(ctx context.Context, log sharedlog.Log, job string, below sharedlog.LSN) (*envelope.Plan, sharedlog.LSN, error) {
	e, ok, err := log.Last(ctx, tags.Control(job), below)
	if err != nil {
		return nil, 0, fmt.Errorf("read the plan of job %q: %w", job, err)
	}
	if !ok {
		return nil, 0, nil
	}
	p, err := plan(job, &e)
	return p, e.LSN, err
}

// Plans returns the plans of a job below a place, in the order of the log, with the LSNs of their
// records. What is trimmed below the newest one is left out: newer plans replace it.
func Plans(ctx context.Context, log sharedlog.Log, job string, below sharedlog.LSN) (plans []*envelope.Plan, at []sharedlog.LSN, err error) {
	for {
		plans, at, err = plansNow(ctx, log, job, below)
		if !errors.Is(err, sharedlog.ErrTrimmed) || ctx.Err() != nil {
			return plans, at, err
		}
		// A trim has overtaken the reader. It leaves the newest plan.
	}
}

func plansNow(ctx context.Context, log sharedlog.Log, job string, below sharedlog.LSN) (plans []*envelope.Plan, at []sharedlog.LSN, err error) {
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tags.Control(job)}, From: sharedlog.Oldest, BelowFloor: true, Until: below})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		b, err := r.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return plans, at, nil
		case err != nil:
			return nil, nil, fmt.Errorf("read the plans of job %q: %w", job, err)
		}
		for i := range b.Entries {
			p, err := plan(job, &b.Entries[i])
			if err != nil {
				return nil, nil, err
			}
			plans, at = append(plans, p), append(at, b.Entries[i].LSN)
		}
	}
}

func plan(job string, e *sharedlog.Entry) (*envelope.Plan, error) {
	p := new(envelope.Plan)
	if err := p.Parse(e.Data); err != nil {
		return nil, fmt.Errorf("the plan of job %q at LSN %d: %w", job, e.LSN, err)
	}
	return p, nil
}

// LastCheckpoint returns the newest complete checkpoint below a place and the LSN of its record;
// nil if there is none.
func LastCheckpoint(ctx context.Context, log sharedlog.Log, job string, below sharedlog.LSN) (*envelope.Checkpoint, sharedlog.LSN, error) {
	e, ok, err := log.Last(ctx, tags.Checkpoints(job), below)
	if err != nil || !ok {
		return nil, 0, err
	}
	c := new(envelope.Checkpoint)
	if err := c.Parse(e.Data); err != nil {
		return nil, 0, fmt.Errorf("checkpoint at LSN %d: %w", e.LSN, err)
	}
	return c, e.LSN, nil
}

// Barrier reads the marker with which a task of a stage committed its part of a checkpoint.
func Barrier(ctx context.Context, log sharedlog.Log, job, stage string, part envelope.CheckpointTask) (*envelope.Marker, error) {
	m, at, err := LastMarker(ctx, log, job, stage, int(part.Task), part.Barrier+1)
	if err != nil {
		return nil, err
	}
	if m == nil || at != part.Barrier {
		return nil, fmt.Errorf("the log has no barrier of stage %q, task %d at LSN %d: %w", stage, part.Task, part.Barrier, sharedlog.ErrCorrupt)
	}
	return m, nil
}
