package runtime

import "time"

// times is what a task knows of the clock, and when it did last what it does by the clock.
type times struct {
	now time.Time // when the task last looked at the clock
	// wall is the highest reading that operators have seen.
	wall int64
	// The last commit, flush and tick, and how far apart they are at most.
	commit, flush, tick     time.Time
	commitEvery, flushEvery time.Duration
	flushes                 bool // outputs are flushed between commits
	source                  bool // the task reads a source
}

// wait returns how long the task may sleep before it has work to do by the clock.
func (t *times) wait(idle, dirty bool) time.Duration {
	next := t.tick.Add(tickEvery)
	if dirty {
		commit, flush := t.intervals(idle)
		if due := t.commit.Add(commit); due.Before(next) {
			next = due
		}
		if due := t.flush.Add(flush); t.flushes && due.Before(next) {
			next = due
		}
	}
	return max(next.Sub(t.now), 0)
}

// idleShare is the part of an interval after which a task that has consumed all its input appends
// its outputs: no further input could share their append, so waiting only delays them. It is not
// 1/∞, because each of P producers that does so wakes P consumers, and each of those … : the number
// of a stage's appends must not grow with a power of the parallelism.
const idleShare = 8

// intervals returns how long after the last one a commit and a flush are due.
func (t *times) intervals(idle bool) (commit, flush time.Duration) {
	commit, flush = t.commitEvery, t.flushEvery
	switch {
	case t.source && !t.flushes:
		commit = flush // a source's flush batches items that arrive one by one
	case t.source || !idle:
	case t.flushes:
		flush /= idleShare // a marker costs more than a flush and keeps its interval
	default:
		commit /= idleShare
	}
	return commit, flush
}

// wall returns the wall clock in ms, as the task's operators see it. It does not go back: neither
// when the machine's clock does, nor below the readings in the markers of earlier instances, which
// may have run on another machine (docs/adr/0042).
func (t *task) wall() int64 {
	t.times.wall = max(t.times.wall, t.cfg.Clock().UnixMilli())
	return t.times.wall
}

// stoodStill is how far the clock may be behind before the task logs it.
const stoodStill = time.Second

// restoreClock sets the highest reading that operators of earlier instances have seen.
func (t *task) restoreClock(ms int64) {
	t.times.wall = max(t.times.wall, ms)
	if behind := time.Duration(ms-t.cfg.Clock().UnixMilli()) * time.Millisecond; ms != 0 && behind > stoodStill {
		t.cfg.Logger.Warn("the clock is behind what the task's operators have seen; for them it stands still until it catches up: compare the clocks of the machines",
			"stage", t.spec.Name, "task", t.index, "behind", behind)
	}
}
