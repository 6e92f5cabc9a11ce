package aligned

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// attempt is an Attempt that is, or was, the job's. Appends of older attempts have no effect above
// the place where it took effect: all of its tasks restore the newest checkpoint below that place.
// The tasks may run in different processes; they communicate through the log.
type attempt struct {
	runtime.Attempt
	condition sharedlog.Condition
	// from: all records of this attempt are at or above it, and records of older attempts there are
	// void.
	from sharedlog.LSN
	last *envelope.Checkpoint // complete; nil: there is none
}

// enter makes want the job's attempt, or finds that it is already: the first task of the attempt
// does that, wherever it runs. Number 0 means the number behind the job's present one. It returns
// runtime.ErrFenced if the job has a different attempt of this number or a higher one.
func enter(ctx context.Context, log sharedlog.Log, job string, want runtime.Attempt, o observe.Observer) (*attempt, error) {
	failed := func(err error) error {
		return fmt.Errorf("begin attempt %d of job %q: %w", want.Number, job, err)
	}
	next := want.Number == 0
	key := tags.AttemptKey(job)
	current, err := log.Get(ctx, key)
	if err != nil {
		return nil, failed(err)
	}
	for {
		have, from, err := parseAttempt(current.Value)
		switch {
		case err != nil:
			return nil, failed(fmt.Errorf("metadata key %q: %w", key, err))
		case have == want && have.Number > 0: // no checkpoint of it is complete, because this task's part is missing
			a := &attempt{Attempt: want, condition: sharedlog.Condition{Key: key, Value: current.Value}, from: from}
			a.last, _, err = records.LastCheckpoint(ctx, log, job, current.Place)
			return a, err
		case next:
			want.Number = have.Number + 1
		case have.Number >= want.Number:
			return nil, failed(fmt.Errorf("%w (the job has attempt %d)", runtime.ErrFenced, have.Number))
		}
		// The log cannot contain anything yet of an attempt that did not exist at Place.
		changed, err := log.CompareAndSet(ctx, key, current.Value, appendAttempt(nil, want, current.Place))
		switch {
		case err == nil:
			observe.Reached(o, observe.Event{Step: observe.CheckpointAttempt, Job: job})
		case errors.Is(err, sharedlog.ErrConflict), errors.Is(err, sharedlog.ErrUnknown) && changed.Place > 0:
			// Either another task of this attempt was faster, or the attempt is another one, or
			// this change took effect and its reply was lost.
		default:
			return nil, failed(err)
		}
		current = changed
	}
}

// NewestAttempt returns the number of a job's newest attempt in the log, 0 if it had none.
func NewestAttempt(ctx context.Context, log sharedlog.Log, job string) (uint64, error) {
	c, err := log.Get(ctx, tags.AttemptKey(job))
	if err != nil {
		return 0, err
	}
	a, _, err := parseAttempt(c.Value)
	return a.Number, err
}

// An attempt in the metadata is number, nonce and from, 8 bytes each, little endian.
func appendAttempt(dst []byte, a runtime.Attempt, from sharedlog.LSN) []byte {
	for _, v := range []uint64{a.Number, a.Nonce, uint64(from)} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

// parseAttempt returns attempt 0 if the value is absent.
func parseAttempt(b []byte) (a runtime.Attempt, from sharedlog.LSN, err error) {
	switch len(b) {
	case 0:
		return a, 0, nil
	case 24:
		a.Number, a.Nonce = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		return a, sharedlog.LSN(binary.LittleEndian.Uint64(b[16:])), nil
	}
	return a, 0, fmt.Errorf("an attempt has 24 bytes, this has %d: it was written by another build", len(b))
}
