package aligned

import (
	"context"
	"errors"
	"sync/atomic"

	"tailrace.dev/tailrace/tasks/commit/direct"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/runtime"
)

// commits implements runtime.Commits.
type commits struct {
	cfg *runtime.Config
	// parts lists the tasks that take part in checkpoints, by stage and number. The first of them
	// coordinates.
	parts []envelope.CheckpointTask
	// near is the coordinator of an attempt, while it runs in this process.
	near atomic.Pointer[coordinator]
}

// New returns the committers of a job's tasks in this process.
func New(cfg *runtime.Config) runtime.Commits {
	c := &commits{cfg: cfg}
	for s := range cfg.Layout.Stages {
		if !c.Together(s) {
			continue
		}
		for i := range cfg.Layout.Stages[s].Tasks {
			c.parts = append(c.parts, envelope.CheckpointTask{Stage: uint32(s), Task: uint32(i)})
		}
	}
	return c
}

// Together implements runtime.Commits.
func (c *commits) Together(stage int) bool {
	return c.cfg.Protocol.Capabilities().TakesPart(c.cfg.Layout.Plan.Stages[stage].Sink)
}

// Attempt implements runtime.Commits.
func (c *commits) Attempt(ctx context.Context) (runtime.Attempt, error) {
	if len(c.parts) == 0 {
		return runtime.Attempt{}, nil
	}
	a, err := enter(ctx, c.cfg.Log, c.cfg.Layout.Job, runtime.Attempt{Nonce: runtime.Nonce()}, c.cfg.Observer)
	if err != nil {
		return runtime.Attempt{}, err
	}
	return a.Attempt, nil
}

// errTogether says why a single task of an attempt cannot be started.
var errTogether = errors.New("the tasks of this protocol start together, in an attempt of the job")

// New implements runtime.Commits.
func (c *commits) New(e *runtime.Engine, of runtime.Attempt) (runtime.Committer, error) {
	switch _, stage := e.Stage(); {
	case !c.Together(stage):
		return direct.New(e), nil
	case of == (runtime.Attempt{}):
		return nil, errTogether
	}
	return newParticipant(c, e, of), nil
}
