package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/exec"
)

// The effects of a task's sinks outside the log cannot have a condition, as appends have. Sinks
// that need one must ask the log beforehand (ADR 40).

// checkTimeout bounds one request to the log, because the sink may hold a lock meanwhile.
const checkTimeout = time.Second

// pauses is how many times a sink retries an operation that is blocked: 6 s, if the log answers.
const pauses = 64

// Fence implements exec.Runtime.
func (t *task) Fence() exec.Fence {
	return exec.Fence{Check: t.alone, Pause: t.pause}
}

// alone implements exec.Fence.
func (t *task) alone() (bool, error) {
	ctx, cancel := context.WithTimeout(t.ctx, checkTimeout)
	defer cancel()
	c, err := t.cfg.Log.Get(ctx, t.inst.condition.Key)
	switch {
	case err == nil && !bytes.Equal(c.Value, t.inst.condition.Value):
		return false, fmt.Errorf("%w (this was instance %d)", ErrFenced, t.inst.number)
	case err == nil:
		return true, nil
	case t.ctx.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return false, nil
	}
	return false, fmt.Errorf("read the instance: %w", err)
}

// pause implements exec.Fence.
func (t *task) pause(n int) error {
	if n >= pauses {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(min(time.Millisecond<<min(n, 10), 100*time.Millisecond))
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
		return t.ctx.Err()
	case <-timer.C:
		return nil
	}
}
