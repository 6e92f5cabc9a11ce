package runtime

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/tags"
)

// instance is which instance of its task this is.
type instance struct {
	number, nonce uint64
	condition     sharedlog.Condition // holds as long as this is the only instance
	place         sharedlog.LSN       // where this instance became the only one
}

// fence makes this instance the task's only one and returns the place from which on no predecessor
// has effect. The value contains a nonce, so that a lost reply is recognised and no two instances
// share a number (pitfall L10).
func (t *task) fence(ctx context.Context) (sharedlog.LSN, error) {
	number, condition, place, err := takeOver(ctx, t.cfg.Log, tags.InstanceKey(t.cfg.Layout.Job, t.spec.Name, t.index), t.inst.nonce)
	if err != nil {
		return 0, err
	}
	t.inst.number, t.inst.condition = number, condition
	name := fmt.Sprintf("%s/%s/%d#%d.%016x", t.cfg.Layout.Job, t.spec.Name, t.index, t.inst.number, t.inst.nonce)
	t.log.writer = sharedlog.NewWriter(t.cfg.Log, name, condition)
	t.log.instance = number
	return place, nil
}

// takeOver sets a metadata key to the next number with a nonce. condition holds until the next
// takeOver.
func takeOver(ctx context.Context, log sharedlog.Log, key string, nonce uint64) (number uint64, condition sharedlog.Condition, place sharedlog.LSN, err error) {
	current, err := log.Get(ctx, key)
	if err != nil {
		return 0, condition, 0, fmt.Errorf("read the instance: %w", err)
	}
	for {
		number = 0
		if len(current.Value) > 0 {
			if number, _, err = parseInstance(current.Value); err != nil {
				return 0, condition, 0, fmt.Errorf("metadata key %q: %w", key, err)
			}
		}
		number++
		mine := appendInstance(nil, number, nonce)
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

// An instance in the metadata is its number and its nonce, 8 bytes each, little
// endian.
func appendInstance(dst []byte, number, nonce uint64) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, number)
	return binary.LittleEndian.AppendUint64(dst, nonce)
}

func parseInstance(b []byte) (number, nonce uint64, err error) {
	if len(b) != 16 {
		return 0, 0, fmt.Errorf("an instance has 16 bytes, this has %d", len(b))
	}
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), nil
}

// Nonce returns 64 random bits that identify one incarnation of a task or process.
func Nonce() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])
}
