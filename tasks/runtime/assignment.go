package runtime

import (
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/tags"
)

// assignment is which part of a job a task is.
type assignment struct {
	spec  *exec.StageSpec
	stage int
	index int
	of    int             // so many tasks has the stage
	owned []int           // key groups, or partitions, ascending
	from  []sharedlog.LSN // by key group: what counts at or above it is the task's to process
	input []int           // stream -> input of the chain, -1 if not consumed
	plans bool            // the task's input has the plans
}

// never is the LSN from which the task processes the items of a group of another task.
const never = ^sharedlog.LSN(0)

func assign(l *layout.Layout, stage, index int) assignment {
	a := assignment{
		spec: &l.Plan.Stages[stage], stage: stage, index: index, of: l.Stages[stage].Tasks,
		owned: l.Owned(stage, index), from: slices.Repeat([]sharedlog.LSN{never}, l.Stages[stage].Groups), input: make([]int, len(l.Streams)),
	}
	for _, g := range a.owned {
		a.from[g] = 0
	}
	for i := range a.input {
		a.input[i] = -1
	}
	for i, stream := range a.spec.Inputs {
		a.input[stream] = i
	}
	return a
}

// counts reports whether the task processes the items of a key group in a record that counts at an
// LSN.
func (a *assignment) counts(group int, at sharedlog.LSN) bool {
	return group < len(a.from) && at >= a.from[group]
}

// inputTags returns the tags of the task's input.
func (a *assignment) inputTags(l *layout.Layout) []sharedlog.Tag {
	var in []sharedlog.Tag
	if a.plans {
		in = append(in, tags.Control(l.Job))
	}
	for _, stream := range a.spec.Inputs {
		s := &l.Streams[stream]
		in = append(in, s.All)
		for g, from := range a.from {
			if from != never {
				in = append(in, s.Data[g])
			}
		}
	}
	return in
}
