package handover

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/status"
)

// catchUp is how long a standby may take to come to the place of a release.
const catchUp = time.Second

// warmCopy is a request for the copies of key groups that a standby of their giver has.
type warmCopy struct {
	answer <-chan exec.GroupState
	cancel context.CancelFunc
}

// copies asks a standby of the giver of a release for key groups, and reports whether there is one to ask.
func (m *mover) copies(ctx context.Context, a *arrival, groups []int) bool {
	if a.cold || !m.mode(a.marker.Released.Plan).Memory {
		return false
	}
	a.cold = true
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	answer := m.e.Warm(ctx, a.giver, groups, a.at, m.poke)
	if answer == nil {
		cancel()
		return false
	}
	a.copy = &warmCopy{answer, cancel}
	return true
}

// copied takes over what standbys have answered, and reports whether there was anything.
func (m *mover) copied() (did bool, err error) {
	for _, a := range slices.Clone(m.arrivals) {
		if a.copy == nil {
			continue
		}
		select {
		case state := <-a.copy.answer:
			a.copy.cancel()
			a.copy, did = nil, true
			if len(state) == 0 {
				continue
			}
			began, groups := m.config().Clock(), slices.Sorted(maps.Keys(state))
			if err := m.e.Attach(state); err != nil {
				return did, fmt.Errorf("take over the copies of key groups %v of task %d: %w", groups, a.giver, err)
			}
			m.e.Moves().Took(m.config().Clock().Sub(began))
			m.e.Reached(observe.RescaleWarm)
			if err := m.has(a, groups, status.Copied); err != nil {
				return did, err
			}
		default:
		}
	}
	return did, nil
}
