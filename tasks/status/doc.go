// Package status is what a running task shows of itself: the task writes a Status, and any goroutine
// takes readings (Snapshot) of it.
package status
