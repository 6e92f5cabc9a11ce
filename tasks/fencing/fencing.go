// Package fencing replaces instances of a task, so that appends of earlier ones have no effect. The
// number of the newest instance is in a metadata key of the log. An instance sets the next number, and
// its appends are conditional on that value:
//
//	metadata  I/<job>/<stage>/<task>   | number, 8 bytes | nonce, 8 bytes |   little endian
//
// The nonce is the instance's own, so that a lost reply is recognised and no two instances share a
// number (pitfall L10).
package fencing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
)

// TakeOver sets a metadata key to the next number, with the caller's nonce. From place on, condition
// holds until the next TakeOver of the key: what is appended on an earlier condition has no effect
// there.
func TakeOver(ctx context.Context, log sharedlog.Log, key string, nonce uint64) (number uint64, condition sharedlog.Condition, place sharedlog.LSN, err error) {
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
		return number, sharedlog.Condition{Key: key, Value: mine}, next.Place, nil
	}
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
