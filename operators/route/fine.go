package route

import "tailrace.dev/tailrace/operators/route/sketch"

// fewest is how many sampled items a key has at least, for its load to count: of fewer, half may be chance.
const fewest = 16

// fine returns the loads within hash groups, which have these loads, by what was sampled. It spreads the load of a group that
// nothing was sampled of evenly. A key counts with what it has for sure, in keys and in the sub-groups with what was sampled.
func fine(s *sketch.Sample, load []int64) (f Fine) {
	if len(s.Parts) != len(load)*Parts {
		return f // nothing was sampled
	}
	f.Parts = make([]int64, len(s.Parts))
	of := make([]float64, len(load))
	for i, n := range s.Parts {
		of[i/Parts] += n
	}
	for i, n := range s.Parts {
		if g := i / Parts; of[g] > 0 {
			f.Parts[i] = int64(float64(load[g]) * n / of[g])
		} else {
			f.Parts[i] = load[g] / Parts
		}
	}
	for _, k := range s.Keys {
		if g := Single([]byte(k.Key)).Home(len(load)); k.Sure() >= fewest && of[g] > 0 {
			f.Keys = append(f.Keys, KeyLoad{k.Key, int64(float64(load[g]) * min(k.Sure()/of[g], 1))})
		}
	}
	return f
}
