//go:build !nokeyed

package optest

import (
	"errors"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
)

// slotTable says which keys are in slots, slotMove what another table moves.
type (
	slotTable = route.Table
	slotMove  = route.Change
)

// slotted finds out whether the task's chain can have slots, and gives it some. A task re-homes by a table of its own: what it
// does is then what tasks do that route by one table, because each owns the slots that its keys are in.
func (t *task) slotted() error {
	t.slots = t.run.plan.WithSlots(t.run.o.Slots).Slots(t.stage)
	if t.slots == 0 {
		return nil
	}
	t.outputs = t.newOutputs()
	c, err := t.spec.New(t)
	if err != nil {
		return err
	}
	err = exec.Rehome(c.Tables(), 0, t.groups, func(uint64, []byte) bool { return false })
	if errors.Is(err, exec.ErrStays) || len(c.Tables()) == 0 || !c.OfStream() {
		t.slots, err = 0, nil
	}
	for s := range t.slots {
		if s%t.of == t.index {
			t.owned = append(t.owned, t.groups+s)
		}
	}
	return errors.Join(err, c.Close())
}

// routes returns the routing table as of a checkpoint of a task.
func (c *checkpoint) routes(t *task) (*route.Table, error) {
	if c.table != nil {
		return c.table, nil
	}
	return route.NewTable(0, t.groups, t.slots, nil)
}

// reroute is called by a commit. At times it draws another routing table, which places parts of key groups in slots or takes
// some back, and returns what it changes.
func (t *task) reroute() ([]slotMove, error) {
	rng := t.run.tables
	if t.slots == 0 || t.fires || rng.IntN(3) > 0 {
		return nil, nil
	}
	if err := t.whole(); err != nil {
		return nil, err
	}
	before, err := t.at.routes(t)
	if err != nil {
		return nil, err
	}
	next := before
	if places := before.Places(); len(places) > 0 && rng.IntN(2) == 0 {
		var kept []route.Place
		for _, p := range places {
			if rng.IntN(2) == 0 {
				kept = append(kept, p)
			}
		}
		next, err = route.NewTable(before.Epoch+1, t.groups, t.slots, kept)
	} else {
		for _, g := range t.owned {
			if g < t.groups || rng.IntN(2) == 0 {
				continue
			}
			sub := rng.IntN(route.Parts) * rng.IntN(2)
			p := route.Place{Part: route.Part{Group: t.owned[rng.IntN(len(t.owned))], Sub: sub, N: 1 + rng.IntN(route.Parts-sub)}, Slot: g}
			// Not if the group or the slot is taken.
			if table, err := route.NewTable(before.Epoch+1, t.groups, t.slots, append(slices.Clone(next.Places()), p)); err == nil {
				next = table
			}
		}
	}
	if err != nil {
		return nil, err
	}
	t.at.table = next
	return route.Diff(before, next), nil
}

// rehome moves what another table changes, between the flush of a commit and the changes.
func (t *task) rehome(c exec.Chain, moves []slotMove, w int64) error {
	for _, m := range moves {
		keys := map[string]bool{}
		if err := exec.Rehome(c.Tables(), m.From, m.To, func(hash uint64, key []byte) bool {
			if !m.Has(hash, key, t.groups) {
				return false
			}
			keys[string(key)] = true
			return true
		}); err != nil {
			return err
		}
		if c == t.chain { // not a replay
			t.run.report.Rehomed += len(keys)
		}
	}
	if len(moves) > 0 {
		c.Stand(exec.Bounds{Time: w})
	}
	return nil
}

// hashes returns those of the keys of a section's items, nil if all are processed in the section's key group.
func (t *task) hashes(in *exec.In, data []byte) (all []uint64) {
	if t.slots == 0 || !t.chain.Keys(in, data, func(hash uint64) { all = append(all, hash) }) {
		return nil
	}
	return all
}

// home returns the key group in which the first item of a section that is not done is processed, and how many of those that
// follow are, too.
func (t *task) home(in *exec.In, hashes []uint64) (group, items int, err error) {
	if hashes == nil {
		return in.Group, in.Items - in.Done, nil
	}
	table, err := t.at.routes(t)
	if err != nil {
		return 0, 0, err
	}
	group = table.Group(hashes[in.Done], nil)
	for items = 1; in.Done+items < in.Items && table.Group(hashes[in.Done+items], nil) == group; items++ {
	}
	return group, items, nil
}
