package route

import (
	"math"

	"tailrace.dev/tailrace/operators/route/sketch"
)

// History is the load of key groups, in which items count the less the longer ago they came.
type History struct {
	at   int64
	load []float64
}

// Add adds the items of each group that came until a time in ms. The number of groups never changes.
func (h *History) Add(at int64, items []int64) {
	if h.load == nil {
		h.load, h.at = make([]float64, len(items)), at
	}
	fade := math.Exp2(-float64(at-h.at) / sketch.HalfLife)
	for g, n := range items {
		h.load[g] = h.load[g]*fade + float64(n)
	}
	h.at = at
}

// one is the load of one item of just now.
const one = 1024

// Load returns the load of each group, nil before the first Add.
func (h *History) Load() []int64 {
	if h.load == nil {
		return nil
	}
	all := make([]int64, len(h.load))
	for g, v := range h.load {
		all[g] = int64(v * one)
	}
	return all
}
