package envelope

import "tailrace.dev/tailrace/sharedlog"

// Checkpoint says that a checkpoint is complete: every task of the job has committed, together with
// all others, what it did up to its barrier (protocol aligned). Without this record none of it is
// committed.
//
// Under the acknowledgements' tag (tags.Acks) the same record with one task is that task's part of
// a checkpoint, which does not complete the checkpoint.
type Checkpoint struct {
	// Job is the job's id.
	Job string
	// Number is the checkpoint's, from 1, without gaps across attempts; Attempt is the job's
	// attempt that made it.
	Number, Attempt uint64
	// Tasks are all participating tasks, by stage and number.
	Tasks []CheckpointTask
	// Rest is how long the sources wait, after they read the record, before they start the next
	// checkpoint, in µs.
	Rest uint64
}

// CheckpointTask is a task's part of a Checkpoint.
type CheckpointTask struct {
	// Stage and Task are as in a Marker.
	Stage, Task uint32
	// Barrier is the LSN of the task's barrier: of this checkpoint, or of the one in
	// which it ended.
	Barrier sharedlog.LSN
	Ended   bool
}

// Final reports whether all tasks have ended: the job has nothing more to do.
func (c *Checkpoint) Final() bool {
	for i := range c.Tasks {
		if !c.Tasks[i].Ended {
			return false
		}
	}
	return true
}

// Find returns a task's part.
func (c *Checkpoint) Find(stage, task int) (CheckpointTask, bool) {
	for _, t := range c.Tasks {
		if int(t.Stage) == stage && int(t.Task) == task {
			return t, true
		}
	}
	return CheckpointTask{}, false
}

// Append appends the record to dst and returns it. It does not retain anything of c.
func (c *Checkpoint) Append(dst []byte) []byte {
	e := encoder{append(dst, byte(KindCheckpoint), version)}
	e.str(1, c.Job)
	e.uint(2, c.Number)
	e.uint(3, c.Attempt)
	for i := range c.Tasks {
		t := &c.Tasks[i]
		e.message(4, uintSize(1, uint64(t.Stage))+uintSize(2, uint64(t.Task))+uintSize(3, uint64(t.Barrier))+boolSize(4, t.Ended))
		e.uint(1, uint64(t.Stage))
		e.uint(2, uint64(t.Task))
		e.uint(3, uint64(t.Barrier))
		e.bool(4, t.Ended)
	}
	e.uint(5, c.Rest)
	return e.b
}

// Parse sets c to the record's contents, and does not retain data. After an error (kinds as for
// KindOf) c is undefined.
func (c *Checkpoint) Parse(data []byte) error {
	body, err := expect(KindCheckpoint, data)
	if err != nil {
		return err
	}
	*c = Checkpoint{Tasks: c.Tasks[:0]}
	d := decoder{b: body}
	for d.next() {
		switch d.num {
		case 1:
			c.Job = string(d.text())
		case 2:
			c.Number = d.uint()
		case 3:
			c.Attempt = d.uint()
		case 4:
			c.Tasks = append(c.Tasks, d.checkpointTask())
		case 5:
			c.Rest = d.uint()
		default:
			d.skip()
		}
	}
	return d.error(KindCheckpoint)
}

func (d *decoder) checkpointTask() CheckpointTask {
	var t CheckpointTask
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			t.Stage = r.uint32()
		case 2:
			t.Task = r.uint32()
		case 3:
			t.Barrier = sharedlog.LSN(r.uint())
		case 4:
			t.Ended = r.bool()
		default:
			r.skip()
		}
	}
	d.take(&r)
	return t
}
