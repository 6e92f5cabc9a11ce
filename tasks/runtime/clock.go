package runtime

import "time"

// wall returns the wall clock in ms, as the task's operators see it. It does not go back: neither
// when the machine's clock does, nor below the readings in the markers of earlier instances, which
// may have run on another machine (docs/adr/0042).
func (t *task) wall() int64 {
	t.highest = max(t.highest, t.cfg.Clock().UnixMilli())
	return t.highest
}

// stoodStill is how far the clock may be behind before the task logs it.
const stoodStill = time.Second

// restoreClock sets the highest reading that operators of earlier instances have seen.
func (t *task) restoreClock(ms int64) {
	t.highest = max(t.highest, ms)
	if behind := time.Duration(ms-t.cfg.Clock().UnixMilli()) * time.Millisecond; ms != 0 && behind > stoodStill {
		t.cfg.Logger.Warn("the clock is behind what the task's operators have seen; for them it stands still until it catches up: compare the clocks of the machines",
			"stage", t.spec.Name, "task", t.index, "behind", behind)
	}
}
