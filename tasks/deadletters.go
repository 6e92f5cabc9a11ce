package tasks

import (
	"context"
	"errors"
	"io"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/deadletter"
)

// DeadLetter is an item that a job's own code could not process.
type DeadLetter = deadletter.Letter

// DeadLetterID identifies a dead letter: the LSN of its record, and its index there.
type DeadLetterID struct {
	LSN   sharedlog.LSN `json:"lsn"`
	Index int           `json:"index"`
}

// ErrNoDeadLetters is in the error of ReadDeadLetters for a job that keeps none.
var ErrNoDeadLetters = errors.New("the job keeps no dead letters (--on-error dead-letter)")

// ReadDeadLetters calls f for each committed dead letter of a job, stage by stage, in the
// order of the log.
func ReadDeadLetters(ctx context.Context, log sharedlog.Log, job string, f func(DeadLetterID, *DeadLetter) error) error {
	plan, err := readPlan(ctx, log, job)
	if err != nil {
		return err
	}
	none := true
	for _, s := range plan.Streams {
		if _, is := deadletter.Is(s.Name); !is {
			continue
		}
		none = false
		if err := readLetters(ctx, log, job, s.Name, f); err != nil {
			return err
		}
	}
	if none {
		return ErrNoDeadLetters
	}
	return nil
}

func readLetters(ctx context.Context, log sharedlog.Log, job, stream string, f func(DeadLetterID, *DeadLetter) error) (err error) {
	r, err := NewReader(ctx, log, job, stream, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		sections, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, s := range sections {
			letters, err := deadletter.Parse(s.Data, s.Items)
			if err != nil {
				return err
			}
			for i := range letters {
				if err := f(DeadLetterID{s.LSN, i}, &letters[i]); err != nil {
					return err
				}
			}
		}
	}
}
