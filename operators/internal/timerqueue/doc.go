// Package timerqueue orders the timers of a task by time and key. A queue is derived from keyed state:
// it is never logged, and a key group that moves away takes its timers with it.
package timerqueue
