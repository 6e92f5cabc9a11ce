// Package timing says when a task does what it does by the clock: commits, flushes and ticks. It reads no
// clock.
package timing

import "time"

// TickEvery is the interval at which a chain receives the wall clock.
const TickEvery = 100 * time.Millisecond

// Times is when a task did last what it does by the clock.
type Times struct {
	Now time.Time // when the task last looked at the clock
	// The last commit, flush and tick, and how far apart they are at most.
	Commit, Flush, Tick     time.Time
	CommitEvery, FlushEvery time.Duration
	Flushes                 bool // outputs are flushed between commits
	Source                  bool // the task reads a source
}

// Wait returns how long the task may sleep before it has work to do by the clock.
func (t *Times) Wait(idle, dirty bool) time.Duration {
	next := t.Tick.Add(TickEvery)
	if dirty {
		commit, flush := t.Intervals(idle)
		if due := t.Commit.Add(commit); due.Before(next) {
			next = due
		}
		if due := t.Flush.Add(flush); t.Flushes && due.Before(next) {
			next = due
		}
	}
	return max(next.Sub(t.Now), 0)
}

// idleShare is the part of an interval after which a task that has consumed all its input appends
// its outputs: no further input could share their append, so waiting only delays them. It is not
// 1/∞, because each of P producers that does so wakes P consumers, and each of those … : the number
// of a stage's appends must not grow with a power of the parallelism.
const idleShare = 8

// Intervals returns how long after the last one a commit and a flush are due.
func (t *Times) Intervals(idle bool) (commit, flush time.Duration) {
	commit, flush = t.CommitEvery, t.FlushEvery
	switch {
	case t.Source && !t.Flushes:
		commit = flush // a source's flush batches items that arrive one by one
	case t.Source || !idle:
	case t.Flushes:
		flush /= idleShare // a marker costs more than a flush and keeps its interval
	default:
		commit /= idleShare
	}
	return commit, flush
}
