package balance

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Request asks to distribute the key groups of a stage over its tasks, as the load demands.
type Request struct {
	// Stage is the stage's name.
	Stage string `json:"stage"`
	// Dispatch is the name of a planner of package route: hash, least-count, weight or auto.
	Dispatch string `json:"planner"`
	// When says when there is a step. If it is zero there is none, and the load is measured only.
	When When `json:"when"`
	// Shares are the shares of the tasks, for weight and auto; nil: equal ones. They count while the
	// stage has as many tasks.
	Shares []float64 `json:"task_weights,omitempty"`
}

// When says when there is a step; at most one of the first three is above 0 (route.When).
type When struct {
	Every int64   `json:"every_ms,omitempty"` // periodically
	Items int64   `json:"items,omitempty"`    // whenever so many have come for the stage
	Below float64 `json:"below,omitempty"`    // when the degree is lower
	// Quiet is the time in ms after a step in which there is no other; 0: as long as Every, at most
	// 10 s.
	Quiet int64 `json:"quiet_ms,omitempty"`
}

// ParseWhen reads off, every=20s, items=10000000 or below=0.9; behind each but off may be quiet=10s.
func ParseWhen(text string) (w When, err error) {
	if text == "off" {
		return w, nil
	}
	wrong := fmt.Errorf("%q: use off, every=20s, items=10000000 or below=0.9, and behind one of them ,quiet=10s for how long there is no other step", text)
	for i, part := range strings.Split(text, ",") {
		name, v, _ := strings.Cut(part, "=")
		var d time.Duration
		switch {
		case name == "every" && i == 0:
			d, err = time.ParseDuration(v)
			if w.Every = d.Milliseconds(); w.Every < 10 {
				return w, wrong
			}
		case name == "items" && i == 0:
			if w.Items, err = strconv.ParseInt(v, 10, 64); w.Items < 1 {
				return w, wrong
			}
		case name == "below" && i == 0:
			if w.Below, err = strconv.ParseFloat(v, 64); !(w.Below > 0 && w.Below <= 1) {
				return w, wrong
			}
		case name == "quiet" && i == 1:
			d, err = time.ParseDuration(v)
			if w.Quiet = d.Milliseconds(); w.Quiet < 1 {
				return w, wrong
			}
		default:
			return w, wrong
		}
		if err != nil {
			return w, wrong
		}
	}
	return w, nil
}
