package tasks

import (
	"context"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/runtime"
)

// Trimmer lets go of what a job's tasks have consumed.
type Trimmer = runtime.Trimmer

// TrimPoint is up to where some of a job's tags may be trimmed, and what holds it.
type TrimPoint = runtime.TrimPoint

// Trimmer returns the job's trimmer. The tasks of a job on workers leave trimming to
// the manager; anybody else may do it too, the points follow from the log.
func (s *Spec) Trimmer(log sharedlog.Log, id string) (*Trimmer, error) {
	l, err := s.layout(s.Plan, id)
	if err != nil {
		return nil, err
	}
	return runtime.NewTrimmer(log, l), nil
}

// TrimPoints returns up to where the job's tags may be trimmed now. Nothing is trimmed.
func (s *Spec) TrimPoints(ctx context.Context, log sharedlog.Log, id string) ([]TrimPoint, error) {
	l, err := s.layout(s.Plan, id)
	if err != nil {
		return nil, err
	}
	return runtime.ReadTrimPoints(ctx, log, l)
}
