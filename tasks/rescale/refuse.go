package rescale

import (
	"errors"
	"fmt"
)

// ErrSourceRestart refuses a mode for a stage that reads a source.
var ErrSourceRestart = errors.New("it reads a source, whose tasks wait for each other: mode " + ModeRestart + " would not end; use another mode")

// OnlyOnRequest refuses to let a policy rescale a stage that reads a source.
func OnlyOnRequest(stage string) error {
	return fmt.Errorf("stage %s cannot be rescaled by a policy: it reads a source, whose partitions move only on request; choose a stage behind it", stage)
}

// Subject is what decides whether a stage can be rescaled.
type Subject struct {
	Stage string
	// Sink, Source: the stage writes to the outside; it has no input streams.
	Sink, Source bool
	// Groups is the number of key groups, Tasks the number of tasks; Most is the highest number of
	// key groups of one task whose commits fit a group of the log, 0: any.
	Groups, Tasks, Most int
	// Protocol is the name of the job's commit protocol. Log: it keeps a change log that a receiver
	// can read. Coordinated: commit records name consumers by key group and owner.
	Protocol         string
	Log, Coordinated bool
}

// Refuse returns why a stage cannot be rescaled to a number of tasks, and what to do instead; nil if
// it can.
func Refuse(s Subject, tasks int) error {
	switch {
	case s.Coordinated:
		return fmt.Errorf("protocol %s cannot be rescaled: a commit record names partitions by owner; use fused or marker", s.Protocol)
	case !s.Log:
		return fmt.Errorf("protocol %s cannot be rescaled: it keeps no change log; stop the job, and submit it again with another parallelism, from a savepoint if it has one", s.Protocol)
	case s.Sink:
		return fmt.Errorf("stage %s cannot be rescaled: it is a sink; rescale a stage before it", s.Stage)
	case tasks < 1:
		return fmt.Errorf("stage %s: %d tasks: at least 1", s.Stage, tasks)
	case s.Source && s.Groups == 1 && tasks > 1:
		return fmt.Errorf("stage %s reads a source of one partition, which one task reads: at most 1 task; give the source more partitions", s.Stage)
	case s.Source && tasks > s.Groups:
		return fmt.Errorf("stage %s reads %d partitions: at most %d tasks", s.Stage, s.Groups, s.Groups)
	case tasks > s.Groups:
		return fmt.Errorf("stage %s has %d key groups: at most %d", s.Stage, s.Groups, s.Groups)
	case s.Most > 0 && (s.Groups+tasks-1)/tasks > s.Most:
		return fmt.Errorf("stage %s: %d tasks would own up to %d of %d key groups, and one commit can contain changes of %d; use at least %d tasks",
			s.Stage, tasks, (s.Groups+tasks-1)/tasks, s.Groups, s.Most, (s.Groups+s.Most-1)/s.Most)
	}
	return nil
}
