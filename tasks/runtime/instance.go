package runtime

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/fencing"
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
	number, condition, place, err := fencing.TakeOver(ctx, t.cfg.Log, tags.ManagerKey(t.cfg.Layout.Job), tags.InstanceKey(t.cfg.Layout.Job, t.spec.Name, t.index), t.inst.nonce)
	if err != nil {
		return 0, err
	}
	t.inst.number, t.inst.condition = number, condition
	name := fmt.Sprintf("%s/%s/%d#%d.%016x", t.cfg.Layout.Job, t.spec.Name, t.index, t.inst.number, t.inst.nonce)
	t.log.Writer = sharedlog.NewWriter(t.cfg.Log, name, condition)
	return place, nil
}

// Nonce returns 64 random bits that identify one incarnation of a task or process.
func Nonce() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])
}
