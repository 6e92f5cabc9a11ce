package exec

import "slices"

// A domain is the streams that meet in some stages: each of these stages reads only streams of the domain,
// and each stream of it is read only there. One routing table routes all of them.

// Domains returns, for each stream of a plan, the first stream of its domain. A stream that no stage reads is
// a domain.
func (p *Plan) Domains() []int {
	of := make([]int, len(p.Streams))
	for i := range of {
		of[i] = i
	}
	for changed := true; changed; {
		changed = false
		for s := range p.Stages {
			for _, in := range p.Stages[s].Inputs {
				first := p.Stages[s].Inputs[0]
				if least := min(of[first], of[in]); of[first] != least || of[in] != least {
					of[first], of[in], changed = least, least, true
				}
			}
		}
	}
	return of
}

// WithSlots returns the plan with so many slots in each stream that can have some: that of a domain in which
// all streams are hashed, into the job's number of key groups, all stages that read them can give key
// groups to others and do not forward theirs, and all that write them learn of plans, as sinks do not. A stream
// that has slots keeps them.
func (p *Plan) WithSlots(slots int) *Plan {
	if slots == 0 {
		return p
	}
	domains := p.Domains()
	var fixed []int // domains without slots
	for i := range p.Streams {
		if s := &p.Streams[i]; !s.Hashed || s.Groups != 0 {
			fixed = append(fixed, domains[i])
		}
	}
	for i := range p.Stages {
		s := &p.Stages[i]
		forwards := slices.ContainsFunc(s.Outputs, func(out int) bool { return p.Streams[out].Forwards })
		if len(s.Inputs) > 0 && (s.Sink || forwards) {
			fixed = append(fixed, domains[s.Inputs[0]])
		}
		if s.Sink {
			for _, out := range s.Outputs {
				fixed = append(fixed, domains[out])
			}
		}
	}
	with := *p
	with.Streams = slices.Clone(p.Streams)
	for i := range with.Streams {
		if !slices.Contains(fixed, domains[i]) {
			with.Streams[i].Slots = slots
		}
	}
	return &with
}

// Slots returns the number of slots of a stage's inputs.
func (p *Plan) Slots(stage int) int {
	if in := p.Stages[stage].Inputs; len(in) > 0 {
		return p.Streams[in[0]].Slots
	}
	return 0
}
