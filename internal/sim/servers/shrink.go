package servers

import "slices"

// Shrink removes what a plan does not need to fail: faults, tasks, operations, time. fails runs a
// plan and reports whether it fails in the same way; it is called at most tries times. Each removal
// changes what the rest does, so an unnecessary part may remain because the run without it has
// another interleaving.
func Shrink(p *Plan, tries int, fails func(*Plan) bool) *Plan {
	best := clone(p)
	try := func(change func(*Plan) bool) bool {
		if tries == 0 {
			return false
		}
		next := clone(best)
		if !change(next) {
			return false
		}
		tries--
		if !fails(next) {
			return false
		}
		best = next
		return true
	}
	for again := true; again && tries > 0; {
		again = false
		// Remove parts of a list: halves first, then quarters, down to single items.
		chunks := func(length func() int, cut func(p *Plan, i, n int)) {
			for n := (length() + 1) / 2; n >= 1; n /= 2 {
				for i := 0; i < length(); {
					if try(func(p *Plan) bool { cut(p, i, min(i+n, length())); return true }) {
						again = true
					} else {
						i += n
					}
				}
			}
		}
		chunks(func() int { return len(best.Faults) }, func(p *Plan, i, j int) { p.Faults = slices.Delete(p.Faults, i, j) })
		chunks(func() int { return len(best.Tasks) }, func(p *Plan, i, j int) { p.Tasks = slices.Delete(p.Tasks, i, j) })
		chunks(func() int { return len(best.Clocks) }, func(p *Plan, i, j int) { p.Clocks = slices.Delete(p.Clocks, i, j) })
		again = try(func(p *Plan) bool {
			last := 0
			for _, f := range p.Faults {
				last = max(last, f.AtMs)
			}
			shorter := last + 500
			if shorter >= p.Length {
				return false
			}
			p.Length = shorter
			return true
		}) || again
		for i := range best.Tasks {
			again = try(func(p *Plan) bool {
				if p.Tasks[i].Ops < 2 {
					return false
				}
				p.Tasks[i].Ops /= 2
				return true
			}) || again
		}
		again = try(func(p *Plan) bool {
			if p.Settings.JitterUs == 0 {
				return false
			}
			p.Settings.JitterUs = 0
			return true
		}) || again
	}
	return best
}

func clone(p *Plan) *Plan {
	c := *p
	c.Tasks, c.Faults, c.Clocks = slices.Clone(p.Tasks), slices.Clone(p.Faults), slices.Clone(p.Clocks)
	return &c
}
