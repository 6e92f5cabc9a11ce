package balance

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tailrace.dev/tailrace/operators/route"
)

// Request asks to distribute the key groups of a stage over its tasks, as the load demands.
type Request struct {
	// Stage is the stage's name.
	Stage string `json:"stage"`
	// Dispatch is the name of a planner of package route: hash, least-count, weight or auto.
	Dispatch string `json:"planner"`
	// When says when there is a step. If it is zero there is none, and the load is measured only.
	When route.When `json:"when"`
	// Shares are the shares of the tasks, for weight and auto; nil: equal ones. They count while the
	// stage has as many tasks.
	Shares []float64 `json:"task_weights,omitempty"`
}

// Check returns why a request makes no sense.
func (r *Request) Check() error {
	if r.Dispatch == "least-key" {
		return errors.New("dispatch least-key: tasks that run do not report the keys of each key group; use least-count, weight or auto")
	}
	if err := route.CheckShares(r.Shares); err != nil {
		return err
	}
	_, err := route.ByName(r.Dispatch)
	return err
}

// ParseWhen reads off, every=20s, items=10000000 or below=0.9; behind each but off may be quiet=10s.
func ParseWhen(text string) (w route.When, err error) {
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
