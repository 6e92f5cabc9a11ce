package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// scale maps values of an axis to pixels.
type scale struct {
	log      bool
	min, max float64
	from, to float64 // pixels of min and max
	ticks    []float64
}

func (s *scale) at(v float64) float64 {
	min, max := s.min, s.max
	if s.log {
		v, min, max = math.Log(v), math.Log(min), math.Log(max)
	}
	return s.from + (v-min)/(max-min)*(s.to-s.from)
}

// An axis is logarithmic when the ratio of its greatest value to its least reaches spread: below, a
// linear axis that includes zero shows more. Bars are compared by their lengths, so they stay
// linear for longer.
const (
	spread     = 12
	spreadBars = 60
)

// newY makes the vertical scale of values: from zero, or logarithmic if they differ by
// a factor of spread.
func newY(values []float64, from, to, spread float64) scale {
	s := scale{from: from, to: to, min: 0, max: 1}
	step := 0.25
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) })
	if len(values) > 0 {
		low, high := slices.Min(values), slices.Max(values)
		s.log = high/low >= spread
		if s.log {
			s.min, s.max = below(low), above(high)
		} else {
			step = stepFor(high * 1.05 / 5)
			s.max = math.Ceil(high*1.05/step) * step
		}
	}
	if s.log {
		s.ticks = logTicks(s.min, s.max)
		return s
	}
	for i := 0; float64(i)*step <= s.max*1.0001; i++ {
		s.ticks = append(s.ticks, float64(i)*step)
	}
	return s
}

// newX makes the horizontal scale of values, with ticks at those values that have room.
func newX(values []float64, from, to float64) scale {
	values = slices.Clone(values)
	slices.Sort(values)
	values = slices.Compact(values)
	s := scale{from: from, to: to, min: 0, max: 1}
	if len(values) == 0 {
		return s
	}
	low, high := values[0], values[len(values)-1]
	switch {
	case low == high:
		s.min, s.max = low*0.5, low*1.5
	case low > 0 && high/low > 5:
		s.log = true
		room := math.Pow(high/low, 0.05)
		s.min, s.max = low/room, high*room
	default:
		room := (high - low) * 0.06
		s.min, s.max = low-room, high+room
	}
	last := math.Inf(-1)
	for _, v := range values {
		if at := s.at(v); at-last >= 30 {
			s.ticks, last = append(s.ticks, v), at
		}
	}
	return s
}

// newTime makes the horizontal scale of times, from 0, with round ticks.
func newTime(values []float64, from, to float64) scale {
	s := scale{from: from, to: to, min: 0, max: 1}
	if len(values) > 0 {
		s.max = max(slices.Max(values), 0.1)
	}
	step := stepFor(s.max / 6)
	for i := 0; float64(i)*step <= s.max*1.0001; i++ {
		s.ticks = append(s.ticks, float64(i)*step)
	}
	return s
}

// stepFor returns the least of 1, 2, 5 times a power of ten that is not below v.
func stepFor(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*p >= v*0.9999 {
			return m * p
		}
	}
	return 10 * p
}

func above(v float64) float64 { return stepFor(v) }

func below(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)*1.0000001))
	for _, m := range []float64{5, 2, 1} {
		if m*p <= v*1.0001 {
			return m * p
		}
	}
	return p / 2
}

// logTicks returns 1, 2, 5 of each decade, or only 1 where they are many.
func logTicks(low, high float64) (ticks []float64) {
	marks := []float64{1, 2, 5}
	if high/low > 500 {
		marks = []float64{1}
	}
	for e := math.Floor(math.Log10(low)); math.Pow(10, e) <= high*1.0001; e++ {
		for _, m := range marks {
			if v := m * math.Pow(10, e); v >= low*0.9999 && v <= high*1.0001 {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

// Number writes a value with few digits: 0.5, 20, 1.5k, 200k, 2M.
func Number(v float64) string {
	trim := func(v float64, unit string) string {
		if math.Abs(v) < 1 {
			return fmt.Sprintf("%.3g", v)
		}
		text := fmt.Sprintf("%.1f", v)
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + unit
	}
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1e6:
		return trim(v/1e6, "M")
	case a >= 1e4 || a >= 1e3 && math.Mod(v, 100) == 0:
		return trim(v/1e3, "k")
	}
	return trim(v, "")
}
