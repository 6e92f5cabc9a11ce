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
	// Dispatch is the name of a planner of package route: hash, least-key, least-count, weight or auto; or Own. The loads of
	// least-key are the keys in state, and those of the others the items that come.
	Dispatch string `json:"planner"`
	// Planner makes the owners if Dispatch is Own. It is a function of the program that runs the job in one
	// process: a request in etcd has none.
	Planner Planner `json:"-"`
	// When says when there is a step. If it is zero there is none, and the load is measured only.
	When When `json:"when"`
	// Shares are the shares of the tasks, for weight and auto; nil: equal ones. They count while the
	// stage has as many tasks.
	Shares []float64 `json:"task_weights,omitempty"`
}

// Own is the Dispatch of a request with a Planner of its own.
const Own = "own"

// byKeys reports whether keys in state are balanced.
func (r *Request) byKeys() bool { return r.Dispatch == "least-key" }

// whole reports whether key groups stay whole in a stage with slots: of parts only the items are sampled.
func (r *Request) whole() bool { return r.Dispatch == "hash" || r.byKeys() }

// Load is what a Planner makes owners for.
type Load struct {
	// Owners is the present owner of each key group, of which the last ones, Slots many, are slots.
	Owners []int
	Slots  int
	// Tasks is the number of tasks: owners are 0 to Tasks-1. When the stage is rescaled it is another one than the owners are of.
	Tasks int
	// Items is the load of each key group by the items that came for it, of which newer ones count more. Only
	// the proportions of the loads mean something.
	Items []int64
	// Keys is the number of keys in the state of each key group; nil: those of some were not counted yet.
	Keys []int64
	// Shares are those of the request; nil: equal ones.
	Shares []float64
}

// Planner returns the owner of each key group. Each task must own one at least. A step is made only if the degree becomes
// better by it than chance explains, as with the planners of package route (docs/adr/0065); in a stage with slots, parts of the key
// groups of the fullest task are placed behind it. A Planner owns the Load; it is called again and again, not concurrently, and must not
// block. If it fails or panics nothing moves, and State.Error says why. (Trilink §4.2.1, a planner of the user's.)
type Planner func(l *Load) ([]int, error)

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
