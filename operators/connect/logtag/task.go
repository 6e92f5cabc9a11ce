package logtag

import (
	"context"
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
)

// Task is what a source and a sink need of a task: its operators.Runtime implements it.
type Task interface {
	// Log returns the log that the job runs on. The context ends with the task.
	Log() (context.Context, sharedlog.Log)
	// Row adds a record to the group of the task's next commit. The log owns data from now on.
	Row(tag sharedlog.Tag, data []byte) error
}

// MaxRow is how many bytes a row of a sink may have.
const MaxRow = 512 << 10

func taskOf(rt exec.Runtime, what string, tag sharedlog.Tag) (Task, error) {
	t, ok := rt.(Task)
	if !ok {
		return nil, fmt.Errorf("tag %q: %s needs the log that the job runs on, and this process runs the plan without one: read the tag itself (tailrace log read --tag %[1]s), or, in a test, replace it (optest.NewDriver)", tag, what)
	}
	return t, nil
}

// check refuses the tags that belong to jobs.
func check(tag sharedlog.Tag) error {
	switch {
	case tag == "":
		return sharedlog.Errorf(sharedlog.KindInvalid, "the tag is empty")
	case len(tag) > sharedlog.MaxTagBytes:
		return sharedlog.Errorf(sharedlog.KindInvalid, "tag %.20q… has %d bytes, at most %d are allowed", tag, len(tag), sharedlog.MaxTagBytes)
	case sharedlog.Reserved(string(tag)):
		return sharedlog.Errorf(sharedlog.KindInvalid, "tag %q belongs to the job %q: use one that does not begin with a capital letter and a slash", tag, sharedlog.Owner(string(tag)))
	}
	return nil
}
