package tasks

import (
	"context"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/retention"
)

// Trimmer trims what a job's tasks have consumed.
type Trimmer = retention.Trimmer

// TrimPoint is how far some of a job's tags may be trimmed, and what prevents more.
type TrimPoint = retention.Point

// Trimmer returns the job's trimmer. Workers leave trimming to the manager, but any other process
// may do it too, because the trim points follow from the log.
func (s *Spec) Trimmer(log sharedlog.Log, id string) (*Trimmer, error) {
	l, err := s.layout(s.Plan, id)
	if err != nil {
		return nil, err
	}
	return retention.NewTrimmer(log, l), nil
}

// Revoke removes the metadata of a job that was deleted: from then on its tasks, wherever one still runs, append nothing.
func (s *Spec) Revoke(ctx context.Context, log sharedlog.Log, id string) error {
	t, err := s.Trimmer(log, id)
	if err != nil {
		return err
	}
	return t.Revoke(ctx)
}

// TrimPoints returns how far the job's tags may be trimmed now. It trims nothing.
func (s *Spec) TrimPoints(ctx context.Context, log sharedlog.Log, id string) ([]TrimPoint, error) {
	l, err := s.layout(s.Plan, id)
	if err != nil {
		return nil, err
	}
	return retention.ReadPoints(ctx, log, l)
}
