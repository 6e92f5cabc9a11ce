// Package walk makes the steps of a job into crash points, for tests that kill a process at each of
// them.
package walk

import (
	"slices"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/tasks/observe"
)

// Observe makes each step of a job a crash point of the same name. It is an observe.Observer.
func Observe(e observe.Event) { crash.Here(At(e.Step)) }

// At returns the crash point of a step.
func At(s observe.Step) crash.Point { return crash.Point(s) }

// OfStarts returns the points of the start of a task, in one process, under each protocol.
func OfStarts() []crash.Point {
	return at(observe.RecoveryFenced, observe.RecoveryRestored, observe.RecoveryAnnounced)
}

// Locked reports whether the goroutine that reaches a point holds a lock that others wait for.
func Locked(p crash.Point) bool {
	return slices.Contains(at(
		observe.TransactionTaken, observe.TransactionBegun, observe.TransactionAdded, observe.TransactionAppended,
		observe.TransactionState, observe.TransactionPrepared, observe.TransactionSecond, observe.TransactionDone,
		observe.CheckpointAttempt,
	), p)
}

// OfCheckpoints returns the points of a job-wide checkpoint and of the return to one. A task of
// another protocol never reaches them.
func OfCheckpoints() []crash.Point {
	return slices.Concat(
		at(
			observe.CheckpointBarrier, observe.CheckpointDelta, observe.CheckpointAcked, observe.CheckpointDecided, observe.CheckpointComplete,
			observe.CheckpointFolding, observe.CheckpointFolded, observe.CheckpointAttempt, observe.CheckpointRestored, observe.CheckpointBegins,
		),
		[]crash.Point{crash.SnapshotGroup, crash.SnapshotUnsaved},
		at(observe.RecoveryLoading, observe.TrimDecided, observe.TrimOne, observe.TrimDone),
	)
}

// Points returns the points of a single task, and those of a trim, in the order in which a process
// reaches them.
func Points() []crash.Point {
	return slices.Concat(
		at(observe.SnapshotBegun, observe.SnapshotRead),
		[]crash.Point{crash.SnapshotGroup, crash.SnapshotUnsaved},
		at(
			observe.SnapshotWritten, observe.SnapshotNaming, observe.SnapshotNamed,
			observe.RecoveryFenced, observe.RecoveryLoading, observe.RecoveryLoaded, observe.RecoveryReplaying, observe.RecoveryRestored, observe.RecoveryAnnounced,
			observe.SavepointDraining, observe.SavepointDrained, observe.SavepointCopied, observe.SavepointUnnamed, observe.SavepointMade,
			observe.AdoptionLoading, observe.AdoptionLoaded,
			observe.TransactionTaken, observe.TransactionBegun, observe.TransactionAdded, observe.TransactionAppended,
			observe.TransactionState, observe.TransactionPrepared, observe.TransactionSecond, observe.TransactionDone,
			observe.TrimDecided, observe.TrimOne, observe.TrimDone,
		),
		[]crash.Point{crash.TrimSynced, crash.TrimUnlisted, crash.TrimDeleted},
	)
}

// OfCopies returns the points of a rescale at which key groups go from one process to another.
func OfCopies() []crash.Point {
	return at(observe.RescaleAsking, observe.RescaleServed, observe.RescaleCopied)
}

// OfStandbys returns the points of a rescale at which key groups come from a standby.
func OfStandbys() []crash.Point { return at(observe.RescaleWarm) }

// OfRescales returns the points of a rescale of a job in one process.
func OfRescales() []crash.Point {
	return at(
		observe.RescaleSilent, observe.RescalePlanning, observe.RescalePlanned, observe.RescaleReleasing, observe.RescaleReleased,
		observe.RescaleTaking, observe.RescaleTaken, observe.RescaleSettled,
	)
}

// OfRoutes returns the points of a change of a routing table, in one process.
func OfRoutes() []crash.Point {
	return at(
		observe.RoutePlanning, observe.RoutePlanned, observe.RouteWaiting, observe.RouteMoving, observe.RouteReached,
		observe.RouteLearned, observe.RouteTaken, observe.RouteBegun, observe.RouteAdopting, observe.RouteRehomed,
		observe.RouteResumed, observe.RouteEntered,
	)
}

func at(steps ...observe.Step) (points []crash.Point) {
	for _, s := range steps {
		points = append(points, At(s))
	}
	return points
}
