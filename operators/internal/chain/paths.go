package chain

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// Paths are the paths by which the items of a keyed flow come into a chain: one from each task that writes
// one of the flow's streams. The path of task t that writes the i-th of n streams has the number t·n + i,
// which does not depend on how many tasks there are: the state of operators has it.
type Paths struct {
	inputs []int // the stage's inputs that the flow comes from
	// Current is the path of the section that is being processed, and Promised the promise of each path
	// (watermark.Paths.Move).
	Current  int
	Promised [exec.MostPaths]int64
}

// NewPaths returns the paths of a flow that comes from these streams; nil if there are none.
func NewPaths(c *Chain, streams []int) *Paths {
	if len(streams) == 0 {
		return nil
	}
	p := &Paths{}
	for _, s := range streams {
		p.inputs = append(p.inputs, slices.Index(c.stage.Streams, s))
	}
	c.paths = append(c.paths, p)
	return p
}

// load is called before a section is processed.
func (p *Paths) load(rt exec.Runtime, in *exec.In) error {
	at := slices.Index(p.inputs, in.Input)
	if at < 0 {
		return nil // it does not reach this flow
	}
	for i := range p.Promised {
		p.Promised[i] = exec.MaxTime // there is no such path
	}
	p.Current = in.Task*len(p.inputs) + at
	most := p.Current
	for i, input := range p.inputs {
		promises := rt.Promises(input)
		if promises == nil { // some tasks are not known, and have promised nothing
			for k := range p.Promised {
				p.Promised[k] = exec.MinTime
			}
			break
		}
		for task, w := range promises {
			n := task*len(p.inputs) + i
			if most = max(most, n); n < len(p.Promised) {
				p.Promised[n] = w
			}
		}
	}
	if most >= exec.MostPaths {
		return fmt.Errorf("the items of a key come by more than %d paths, for which ByProducer has no room", exec.MostPaths)
	}
	return nil
}
