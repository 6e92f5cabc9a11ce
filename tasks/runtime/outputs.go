package runtime

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/routing"
)

// outputs is what a task has made and not appended.
type outputs struct {
	streams    []*exec.Output
	changes    *exec.Output  // of state
	routes     *routing.Task // by which table items go, and where they are processed; nil: no table concerns the task
	rows       rows
	flushed    int          // bytes of output flushed since the last commit
	parts      bool         // some of it is a part of the next commit
	partGroups map[int]bool // key groups of the parts of this commit's changes
	decided    []int        // key groups whose change logs get this commit even if nothing changes: what is not committed there is void
	marks      []exec.Mark
	dead       int // index of the output for dead letters, -1: there is none
	step       int // how many units the next call processes
	mostUnits  int // at most
	commitSize int // bytes that are enough for a commit
	madeBefore int // of made
}

// pendingBytes returns how many bytes of output are pending.
func (o *outputs) pendingBytes() int {
	n := 0
	for _, s := range o.streams {
		n += s.Bytes()
	}
	return n
}

// pace decides how many units the next call processes, by the output of the last ones: a fraction
// of what is enough for a commit. changes is how many bytes of state changes are pending.
func (o *outputs) pace(changes int) {
	made := o.made(changes) - o.madeBefore
	o.madeBefore += made
	most := max(o.commitSize/2, 1)
	switch {
	case made > most:
		o.step = max(int(int64(o.step)*int64(most)/int64(made)), 1)
	case made < most/4:
		o.step = min(2*o.step, o.mostUnits)
	}
}

// made returns how many bytes the task has made, without changes that are committed.
func (o *outputs) made(changes int) int {
	n := changes
	for _, s := range o.streams {
		n += s.Total()
	}
	return n
}

// appended is called when a commit's appends have started.
func (o *outputs) appended() { o.flushed, o.parts = 0, false }
