package tasks

import (
	"context"
	"log/slog"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/commit/aligned"
	"tailrace.dev/tailrace/tasks/commit/direct"
	"tailrace.dev/tailrace/tasks/commit/txn"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/txn/coordinator"
)

// commits returns how the tasks of a job commit. No other place knows the packages below
// tasks/commit.
func commits(cfg *runtime.Config, logger *slog.Logger) runtime.Commits {
	switch can := cfg.Protocol.Capabilities(); {
	case can.Together:
		return aligned.New(cfg)
	case can.Coordinator:
		return txn.New(coordinatorOf(cfg, logger))
	}
	return direct.Commits{}
}

// coordinatorOf returns the coordinator of transactions: the storage nodes of a cluster's log, or
// else this process itself.
func coordinatorOf(cfg *runtime.Config, logger *slog.Logger) txn.Coordinator {
	if c, ok := cfg.Log.(coordinator.Cluster); ok {
		return coordinator.NewRemote(c)
	}
	s := coordinator.On(cfg.Log, logger)
	s.Observer = cfg.Observer
	return s
}

// Protocols returns the names of the commit protocols, the default first.
func Protocols() (names []string) {
	for _, p := range progress.Protocols() {
		names = append(names, p.Name())
	}
	return names
}

// Attempt identifies one execution of a job whose tasks commit together (runtime.Attempt).
type Attempt = runtime.Attempt

// NewestAttempt returns the number of the newest attempt in the log of the job with this id, 0 if
// there was none.
func NewestAttempt(ctx context.Context, log sharedlog.Log, id string) (uint64, error) {
	return aligned.NewestAttempt(ctx, log, id)
}
