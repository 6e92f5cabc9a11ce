package sketch

import (
	"math"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// HalfLife is the time in ms after which an item counts half.
const HalfLife = 10_000

// counters is how many keys a Load counts: it knows each that has more than 1/256 of what is sampled.
const counters = 256

// Load is what is known of the items of the hash groups of a stream: of sampled ones, those that come later count more.
type Load struct {
	// Groups is the number of hash groups, Subs that of sub-groups of each (exec.SubGroupOf).
	Groups, Subs int
	// Parts is the weight of each sub-group, at group·Subs + sub-group.
	Parts []float64
	// Keys counts the heaviest keys.
	Keys *Sketch
}

// NewLoad returns the load of a stream without items.
func NewLoad(groups, subs int) *Load {
	return &Load{Groups: groups, Subs: subs, Parts: make([]float64, groups*subs), Keys: New(counters)}
}

// Add adds an item with a key that is in its hash group.
func (l *Load) Add(hash uint64, key []byte) {
	l.Parts[exec.GroupOf(hash, l.Groups)*l.Subs+exec.SubGroupOf(hash, l.Groups, l.Subs)]++
	l.Keys.Add(hash, key, 1)
}

// Fade lets a time in ms pass.
func (l *Load) Fade(ms int64) {
	by := math.Exp2(-float64(ms) / HalfLife)
	for i := range l.Parts {
		l.Parts[i] *= by
	}
	l.Keys.Fade(by)
}

// Reset forgets everything.
func (l *Load) Reset() {
	clear(l.Parts)
	l.Keys.Reset()
}

// Sample is the weights of a Load, or of several together.
type Sample struct {
	// Parts is as in Load, nil: there is none.
	Parts []float64
	// Keys are those that have a counter, the heaviest first. Another key has at most Missed.
	Keys   []Count
	Missed float64
}

// Sample returns the weights.
func (l *Load) Sample() Sample {
	return Sample{Parts: slices.Clone(l.Parts), Keys: l.Keys.Counts(), Missed: l.Keys.Missed()}
}

// Sum returns what samples of streams with the same groups say together. A key that one of them lacks may have had as much
// there as it says that it has missed.
func Sum(all ...Sample) (s Sample) {
	in := map[string]int{}
	for i := range all {
		s.Missed += all[i].Missed
	}
	for _, one := range all {
		if s.Parts == nil {
			s.Parts = make([]float64, len(one.Parts))
		}
		for i := range min(len(s.Parts), len(one.Parts)) {
			s.Parts[i] += one.Parts[i]
		}
		for _, c := range one.Keys {
			i, ok := in[c.Key]
			if !ok {
				i = len(s.Keys)
				in[c.Key], s.Keys = i, append(s.Keys, Count{c.Key, c.Hash, s.Missed, s.Missed})
			}
			s.Keys[i].Count += c.Count - one.Missed
			s.Keys[i].Over += c.Over - one.Missed
		}
	}
	slices.SortFunc(s.Keys, heavier)
	return s
}
