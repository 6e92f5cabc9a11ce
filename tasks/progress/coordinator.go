package progress

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/tasks/envelope"
)

// Coordinator decides when a checkpoint of a job is complete (protocol aligned). There is one for
// each attempt. At most one checkpoint is in progress, because the sources start one only when they
// have read that the previous one is complete:
//
//	the sources begin → Ack of every task that has not ended → the record is appended →
//	Completed → the sources read the record
type Coordinator struct {
	job      string
	attempt  uint64
	last     uint64 // the newest complete checkpoint
	tasks    []envelope.CheckpointTask
	acked    []bool // of checkpoint last + 1
	deciding bool   // all have acknowledged, the record is being appended
}

// NewCoordinator returns the coordinator of an attempt that resumes behind a complete checkpoint.
// tasks are all tasks that take part; last is nil if there is no checkpoint yet.
func NewCoordinator(job string, attempt uint64, tasks []envelope.CheckpointTask, last *envelope.Checkpoint) *Coordinator {
	c := &Coordinator{job: job, attempt: attempt, tasks: slices.Clone(tasks), acked: make([]bool, len(tasks))}
	if last != nil {
		c.last, c.tasks = last.Number, slices.Clone(last.Tasks)
	}
	c.next()
	return c
}

// next starts waiting for the checkpoint after the last one: tasks that have ended need not
// acknowledge it.
func (c *Coordinator) next() {
	for i := range c.tasks {
		c.acked[i] = c.tasks[i].Ended
	}
}

// Final reports whether the newest complete checkpoint is the job's last.
func (c *Coordinator) Final() bool {
	all := envelope.Checkpoint{Tasks: c.tasks}
	return c.last > 0 && !c.deciding && all.Final()
}

// Ack records a task's acknowledgement of a checkpoint: its barrier is in the log, its state in the
// store. After the last acknowledgement, record is the record to append; the caller owns it.
// Repeated and older acknowledgements have no effect: a task that starts reports its checkpoint as
// well.
func (c *Coordinator) Ack(checkpoint uint64, t envelope.CheckpointTask) (record *envelope.Checkpoint, err error) {
	i := slices.IndexFunc(c.tasks, func(x envelope.CheckpointTask) bool { return x.Stage == t.Stage && x.Task == t.Task })
	switch {
	case i < 0:
		return nil, fmt.Errorf("task %d/%d acknowledges checkpoint %d: it takes no part", t.Stage, t.Task, checkpoint)
	case checkpoint <= c.last:
		return nil, nil
	case checkpoint != c.last+1:
		return nil, fmt.Errorf("task %d/%d acknowledges checkpoint %d: checkpoint %d is not complete", t.Stage, t.Task, checkpoint, c.last+1)
	case c.acked[i]:
		return nil, nil
	}
	c.tasks[i], c.acked[i] = t, true
	if c.deciding = !slices.Contains(c.acked, false); !c.deciding {
		return nil, nil
	}
	return &envelope.Checkpoint{Job: c.job, Number: checkpoint, Attempt: c.attempt, Tasks: slices.Clone(c.tasks)}, nil
}

// Completed records that the record that Ack returned is in the order.
func (c *Coordinator) Completed() {
	if c.deciding {
		c.last++
		c.deciding = false
		c.next()
	}
}
