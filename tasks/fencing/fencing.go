// Package fencing replaces instances of a task, so that appends of earlier ones have no effect. The
// number of the newest instance is in a metadata key of the log. An instance sets the next number, and
// its appends are conditional on that value:
//
//	metadata  I/<job>/<stage>/<task>   | number, 8 bytes | nonce, 8 bytes |   little endian
//
// The nonce is the instance's own, so that a lost reply is recognised and no two instances share a
// number (pitfall L10).
//
// Of a job that is deleted the manager's key is removed first, and then those of the instances. An instance that sets its key
// looks for the manager's afterwards: either the one that deletes sees the instance's key, or the instance that there is no job.
package fencing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
)

// ErrDeleted is in the error of TakeOver when there is no such job any more.
var ErrDeleted = errors.New("the job was deleted")

// TakeOver sets a metadata key to the next number, with the caller's nonce. From place on, condition
// holds until the next TakeOver of the key: what is appended on an earlier condition has no effect
// there. job is the metadata key that the job has as long as it is not deleted: without it the key is removed again.
func TakeOver(ctx context.Context, log sharedlog.Log, job, key string, nonce uint64) (number uint64, condition sharedlog.Condition, place sharedlog.LSN, err error) {
	current, err := log.Get(ctx, key)
	if err != nil {
		return 0, condition, 0, fmt.Errorf("read the instance: %w", err)
	}
	for {
		number = 0
		if len(current.Value) > 0 {
			if number, _, err = parse(current.Value); err != nil {
				return 0, condition, 0, fmt.Errorf("metadata key %q: %w", key, err)
			}
		}
		number++
		mine := encode(nil, number, nonce)
		next, err := log.CompareAndSet(ctx, key, current.Value, mine)
		if errors.Is(err, sharedlog.ErrConflict) || errors.Is(err, sharedlog.ErrUnknown) && next.Place > 0 {
			if string(next.Value) != string(mine) { // another process was faster: try again behind it
				current = next
				continue
			}
			err = nil // the value is ours, its reply was lost
		}
		if err != nil {
			return 0, condition, 0, fmt.Errorf("set the instance: %w", err)
		}
		if err := exists(ctx, log, job, key, mine); err != nil {
			return 0, condition, 0, err
		}
		return number, sharedlog.Condition{Key: key, Value: mine}, next.Place, nil
	}
}

// exists returns ErrDeleted if there is no job, and removes what was set for it then.
func exists(ctx context.Context, log sharedlog.Log, job, key string, mine []byte) error {
	c, err := log.Get(ctx, job)
	if err != nil {
		return fmt.Errorf("look for the job: %w", err)
	}
	if len(c.Value) > 0 {
		return nil
	}
	_, err = log.CompareAndSet(ctx, key, mine, nil)
	if errors.Is(err, sharedlog.ErrConflict) || errors.Is(err, sharedlog.ErrUnknown) {
		err = nil // the one that deletes the job has removed it
	}
	return errors.Join(ErrDeleted, err)
}

func encode(dst []byte, number, nonce uint64) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, number)
	return binary.LittleEndian.AppendUint64(dst, nonce)
}

func parse(b []byte) (number, nonce uint64, err error) {
	if len(b) != 16 {
		return 0, 0, fmt.Errorf("an instance has 16 bytes, this has %d", len(b))
	}
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), nil
}
