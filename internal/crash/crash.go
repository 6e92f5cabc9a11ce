// Package crash names the points at which a process may be killed in the middle of an operation
// that has several steps: snapshots, recoveries, trims. A test visits all of them: a process that
// is armed with a point kills itself there. Only tests arm points.
package crash

import (
	"sync/atomic"
	"syscall"
)

// Point is a place between two steps.
type Point string

// The points, in the order in which a task reaches them.
const (
	// A snapshot.
	SnapshotBegun   Point = "snapshot: the store knows its writer"
	SnapshotRead    Point = "snapshot: changes were read, nothing is written"
	SnapshotGroup   Point = "snapshot: one key group is written, others are not"
	SnapshotUnsaved Point = "snapshot: all is written, nothing made durable"
	SnapshotWritten Point = "snapshot: written, no marker names it"
	SnapshotNaming  Point = "snapshot: the marker that names it is on its way"
	SnapshotNamed   Point = "snapshot: the marker that names it is acknowledged"
	// A checkpoint of a whole job (protocol aligned).
	CheckpointBarrier  Point = "checkpoint: a barrier is on its way, its delta is not written"
	CheckpointDelta    Point = "checkpoint: a delta is durable, not acknowledged"
	CheckpointAcked    Point = "checkpoint: one task has acknowledged it"
	CheckpointDecided  Point = "checkpoint: all have, its record is not in the log"
	CheckpointComplete Point = "checkpoint: it is complete, no task was told"
	CheckpointFolding  Point = "checkpoint: its delta is to be folded into the base"
	CheckpointFolded   Point = "checkpoint: the base has it, the delta was removed"
	CheckpointAttempt  Point = "checkpoint: a new attempt is the only one"
	CheckpointRestored Point = "checkpoint: base and deltas are read, others not removed"
	CheckpointBegins   Point = "checkpoint: a task of the new attempt has its state"
	// A recovery.
	RecoveryFenced    Point = "recovery: the instance is the only one"
	RecoveryLoading   Point = "recovery: some of a snapshot is read"
	RecoveryLoaded    Point = "recovery: the snapshots are read"
	RecoveryReplaying Point = "recovery: some of the change log is read"
	RecoveryRestored  Point = "recovery: the state is there"
	RecoveryAnnounced Point = "recovery: the first marker is on its way"
	// A savepoint, and a start from one.
	SavepointDraining Point = "savepoint: a task has stopped, its marker is on its way"
	SavepointDrained  Point = "savepoint: all tasks have stopped"
	SavepointCopied   Point = "savepoint: some state is copied"
	SavepointUnnamed  Point = "savepoint: all state is copied, nothing names it"
	SavepointMade     Point = "savepoint: it exists, the job has not gone on"
	AdoptionLoading   Point = "beginning from a savepoint: some of its state is copied"
	AdoptionLoaded    Point = "beginning from a savepoint: all of its state is copied"
	// A transaction of protocol txn.
	TransactionTaken    Point = "transaction: a coordinator has taken over, the stream is not read"
	TransactionBegun    Point = "transaction: the instance is known to the coordinator"
	TransactionAdded    Point = "transaction: partitions are registered, nothing is appended"
	TransactionAppended Point = "transaction: all is appended, nothing decided"
	TransactionState    Point = "transaction: a state is in the stream, no task has an answer"
	TransactionPrepared Point = "transaction: prepared, and the task knows it"
	TransactionSecond   Point = "transaction: some commit records are on their way, others are not"
	TransactionDone     Point = "transaction: all commit records are there, no task has an answer"
	// A trim.
	TrimDecided  Point = "trim: the points are known, none is in the log"
	TrimOne      Point = "trim: one tag is trimmed, others are not"
	TrimDone     Point = "trim: all tags are trimmed"
	TrimSynced   Point = "trim: the points are durable, no segment is deleted"
	TrimUnlisted Point = "trim: a segment is out of the catalogue, its file is there"
	TrimDeleted  Point = "trim: one segment is deleted, others are not"
)

// OfCheckpoints returns the points of a job-wide checkpoint and of the return to one. A task of
// another protocol never reaches them.
func OfCheckpoints() []Point {
	return []Point{
		CheckpointBarrier, CheckpointDelta, CheckpointAcked, CheckpointDecided, CheckpointComplete, CheckpointFolding, CheckpointFolded,
		CheckpointAttempt, CheckpointRestored, CheckpointBegins, SnapshotGroup, SnapshotUnsaved, RecoveryLoading,
		TrimDecided, TrimOne, TrimDone,
	}
}

// Points returns the points of a single task, and those of a trim.
func Points() []Point {
	return []Point{
		SnapshotBegun, SnapshotRead, SnapshotGroup, SnapshotUnsaved, SnapshotWritten, SnapshotNaming, SnapshotNamed,
		RecoveryFenced, RecoveryLoading, RecoveryLoaded, RecoveryReplaying, RecoveryRestored, RecoveryAnnounced,
		SavepointDraining, SavepointDrained, SavepointCopied, SavepointUnnamed, SavepointMade, AdoptionLoading, AdoptionLoaded,
		TransactionTaken, TransactionBegun, TransactionAdded, TransactionAppended, TransactionState, TransactionPrepared, TransactionSecond, TransactionDone,
		TrimDecided, TrimOne, TrimDone, TrimSynced, TrimUnlisted, TrimDeleted,
	}
}

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
