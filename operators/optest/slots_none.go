//go:build nokeyed

package optest

import (
	"errors"

	"tailrace.dev/tailrace/operators/exec"
)

// A program that is built with the tag nokeyed has no tables for slots.

type slotTable struct{}

type slotMove struct{}

func (t *task) slotted() error {
	if t.run.o.Slots > 0 {
		return errors.New("optest: slots in a program that is built without them (tag nokeyed)")
	}
	return nil
}

func (t *task) reroute() ([]slotMove, error) { return nil, nil }

func (t *task) rehome(exec.Chain, []slotMove, int64) error { return nil }

func (t *task) hashes(*exec.In, []byte) []uint64 { return nil }

func (t *task) home(in *exec.In, _ []uint64) (group, items int, err error) {
	return in.Group, in.Items - in.Done, nil
}
