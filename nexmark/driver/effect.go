package driver

import (
	"slices"
	"time"
)

// Effect is what a rescale did to the visible latency, by the moments of the measured time around it.
type Effect struct {
	// P99Before is the median of the moments' p99 in the five seconds before the rescale was asked for.
	P99Before MS `json:"p99_before_ms"`
	// Peak is the highest latency from then until a second after the rescale had settled, or until the
	// next one.
	Peak MS `json:"peak_ms"`
	// Back is the time from the request until the latency was as before: until three moments in a row
	// began whose p99 is at most a tenth above P99Before.
	Back MS `json:"back_ms"`
}

const (
	effectBefore = 5 * time.Second
	effectAfter  = time.Second
	effectCalm   = 3 // moments
)

// effectOf returns the effect of a rescale that was asked for at a time of the measured time, and took
// so long. next is when the next one was asked for, or Unseen. It returns nil if the moments do not
// cover the rescale.
func effectOf(all []Moment, asked, took, next MS) *Effect {
	step := MS(TimelineStep.Milliseconds())
	e := &Effect{P99Before: Unseen(), Peak: Unseen(), Back: Unseen()}
	end := asked + took + MS(effectAfter.Milliseconds())
	if next.Seen() {
		end = min(end, next)
	}
	var before []MS
	calm, covered := 0, false
	for i := range all {
		switch m := &all[i]; {
		case m.At <= asked: // its time ends with At
			if p := m.Visible.P99; p.Seen() && m.At > asked-MS(effectBefore.Milliseconds()) {
				before = append(before, p)
			}
		case next.Seen() && m.At-step >= next:
		default:
			covered = true
			if !e.P99Before.Seen() && len(before) > 0 {
				slices.Sort(before)
				e.P99Before = before[len(before)/2]
			}
			if p := m.Visible.Max; p.Seen() && m.At-step < end && (!e.Peak.Seen() || p > e.Peak) {
				e.Peak = p
			}
			if e.Back.Seen() {
				continue
			}
			if p := m.Visible.P99; p.Seen() && p <= e.P99Before*1.1 {
				calm++
			} else {
				calm = 0
			}
			if calm == effectCalm {
				e.Back = max(m.At-effectCalm*step-asked, 0)
			}
		}
	}
	if !covered || len(before) == 0 {
		return nil
	}
	return e
}

// effects sets the effects of rescales from the moments of a measurement that began at a time.
func effects(rescaled []Rescaled, all []Moment, begin time.Time) {
	for i := range rescaled {
		r := &rescaled[i]
		if r.NotDone != "" {
			continue
		}
		next := Unseen()
		if i+1 < len(rescaled) && rescaled[i+1].NotDone == "" {
			next = msOf(rescaled[i+1].asked.Sub(begin))
		}
		r.Effect = effectOf(all, msOf(r.asked.Sub(begin)), MS(r.SettledMS), next)
	}
}

func msOf(d time.Duration) MS { return MS(d.Microseconds()) / 1000 }
