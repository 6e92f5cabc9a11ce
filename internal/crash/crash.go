// Package crash kills a process in the middle of an operation that has several steps: snapshots,
// recoveries, trims. A test visits all points between two steps: a process that is armed with a
// point kills itself there. Only tests arm points.
package crash

import (
	"sync/atomic"
	"syscall"
)

// Point is a place between two steps.
type Point string

// The points of what has no job: stores and the embedded log. Those of jobs are the steps that an
// observer is told (tasks/observe); package walk has all of them in order.
const (
	SnapshotGroup   Point = "snapshot: one key group is written, others are not"
	SnapshotUnsaved Point = "snapshot: all is written, nothing made durable"
	TrimSynced      Point = "trim: the points are durable, no segment is deleted"
	TrimUnlisted    Point = "trim: a segment is out of the catalogue, its file is there"
	TrimDeleted     Point = "trim: one segment is deleted, others are not"
)

type armed struct {
	point Point
	left  atomic.Int64
}

var at atomic.Pointer[armed]

// Arm makes the process kill itself when it reaches a point for the n-th time.
func Arm(p Point, n int) {
	a := &armed{point: p}
	a.left.Store(int64(n))
	at.Store(a)
}

var watcher atomic.Pointer[func(Point)]

// Watch makes every point call f, concurrently. It is for tests that simulate the death of a
// process without ending theirs. nil removes f.
func Watch(f func(Point)) {
	if f == nil {
		watcher.Store(nil)
		return
	}
	watcher.Store(&f)
}

// Here marks that the process is at a point.
func Here(p Point) {
	if f := watcher.Load(); f != nil {
		(*f)(p)
	}
	a := at.Load()
	if a == nil || a.point != p || a.left.Add(-1) != 0 {
		return
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // the signal is not delivered at once
}
