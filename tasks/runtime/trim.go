package runtime

import (
	"context"
	"math"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/tags"
)

// trim lets go, round after round, of what no task can ask for again. Its points
// follow from acknowledged commits, so that the log never holds a trim point above
// what a restarted task would read (architecture, "Trim"):
//
//	data and all tags of a stream   the lowest low of the tasks that consume it
//	a task's log                    its newest marker
//	change logs                     not yet: they end at snapshots
//
// A round that fails is made again later; a log that is gone ends the job by
// itself.
func (j *Job) trim(ctx context.Context) {
	tick := time.NewTicker(j.crew.cfg.TrimInterval)
	defer tick.Stop()
	done := j.crew.cfg.Log.Stats().Written
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		written := j.crew.cfg.Log.Stats().Written
		if written-done < j.crew.cfg.TrimBytes {
			continue
		}
		if err := j.trimOnce(ctx); err != nil {
			if ctx.Err() == nil {
				j.crew.cfg.Logger.Warn("what was consumed could not be trimmed; trying again", "job", j.crew.cfg.Layout.Job, "error", err)
			}
			continue
		}
		done = written
	}
}

func (j *Job) trimOnce(ctx context.Context) error {
	l := j.crew.cfg.Layout
	points := make([]uint64, len(l.Streams))
	for i := range points {
		points[i] = math.MaxUint64
	}
	trim := func(tag sharedlog.Tag, before uint64) error {
		if before == 0 || before == math.MaxUint64 {
			return nil // nothing committed yet, or nobody reads it
		}
		return j.crew.cfg.Log.Trim(ctx, tag, sharedlog.LSN(before))
	}
	for s, tasks := range j.tasks {
		spec := &l.Plan.Stages[s]
		for i, r := range tasks {
			low, marker := r.task.status.low.Load(), r.task.status.marker.Load()
			for _, in := range spec.Inputs {
				points[in] = min(points[in], low)
			}
			if err := trim(tags.Task(l.Job, spec.Name, i), marker); err != nil {
				return err
			}
		}
	}
	for i := range l.Streams {
		s := &l.Streams[i]
		for _, tag := range append([]sharedlog.Tag{s.All}, s.Data...) {
			if err := trim(tag, points[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
