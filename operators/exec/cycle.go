package exec

import "slices"

// Cycle returns a stream of the plan that leads back into a stage that it comes from, and that stage; -1: there is none.
func (p *Plan) Cycle() (stream, stage int) {
	const open, done = 1, 2
	state := make([]int, len(p.Stages))
	var visit func(s int) bool
	visit = func(s int) bool {
		state[s] = open
		for _, out := range p.Stages[s].Outputs {
			for i := range p.Stages {
				switch {
				case !slices.Contains(p.Stages[i].Inputs, out) || state[i] == done:
				case state[i] == open:
					stream, stage = out, i
					return true
				case visit(i):
					return true
				}
			}
		}
		state[s] = done
		return false
	}
	for s := range p.Stages {
		if state[s] == 0 && visit(s) {
			return stream, stage
		}
	}
	return -1, -1
}
