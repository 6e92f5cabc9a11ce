package runtime

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
)

// assignment is which part of a job a task is.
type assignment struct {
	spec   *exec.StageSpec
	stage  int
	index  int
	of     int    // so many tasks has the stage
	owned  []int  // key groups, or partitions, ascending
	isMine []bool // by key group
	input  []int  // stream -> input of the chain, -1 if not consumed
}

func assign(l *layout.Layout, stage, index int) assignment {
	a := assignment{
		spec: &l.Plan.Stages[stage], stage: stage, index: index, of: l.Stages[stage].Tasks,
		owned: l.Owned(stage, index), isMine: make([]bool, l.Stages[stage].Groups), input: make([]int, len(l.Streams)),
	}
	for _, g := range a.owned {
		a.isMine[g] = true
	}
	for i := range a.input {
		a.input[i] = -1
	}
	for i, stream := range a.spec.Inputs {
		a.input[stream] = i
	}
	return a
}

// owns reports whether the task owns a key group.
func (a *assignment) owns(group int) bool { return group < len(a.isMine) && a.isMine[group] }

// inputTags returns the tags of the task's input.
func (a *assignment) inputTags(l *layout.Layout) []sharedlog.Tag {
	var in []sharedlog.Tag
	for _, stream := range a.spec.Inputs {
		s := &l.Streams[stream]
		in = append(in, s.All)
		for _, g := range a.owned {
			in = append(in, s.Data[g])
		}
	}
	return in
}
