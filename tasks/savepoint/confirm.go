package savepoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/tasks/checkpoint"
)

// Confirm waits until a store that may lose its newest writes (checkpoint.Store.LossWindow) can no
// longer lose a savepoint that was made just now, and checks that the store still has it. If not,
// Confirm removes the rest of it and fails with ErrLost.
func Confirm(ctx context.Context, store checkpoint.Store, m *Manifest) error {
	if store.LossWindow() <= 0 {
		return nil
	}
	if err := checkpoint.AwaitLossWindow(ctx, store); err != nil {
		return fmt.Errorf("savepoint %q: whether the checkpoint store keeps it is not known yet: %w", m.Name, err)
	}
	err := m.look(ctx, store)
	if errors.Is(err, ErrLost) {
		err = errors.Join(err, m.remove(ctx, store))
	}
	if err != nil {
		return err
	}
	return list(ctx, store, m.Name, []byte{1}) // that may have been lost, too
}

// remove removes what is left of a savepoint, unless there is another one of that name, or another maker has claimed it.
func (m *Manifest) remove(ctx context.Context, store checkpoint.Store) error {
	if have, err := Find(ctx, store, m.Name); err == nil && !m.is(have) {
		return nil
	}
	var all []checkpoint.Group
	for i := range m.Stages {
		for g := range m.Stages[i].Groups {
			all = append(all, m.Group(m.Stages[i].Name, g))
		}
	}
	for _, g := range append(all, manifestGroup(m.Name)) {
		if err := store.Clear(ctx, g, cmp.Or(m.Claim, m.At)); errors.Is(err, checkpoint.ErrFenced) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return list(ctx, store, m.Name, nil)
}

// is reports whether two manifests are of one savepoint.
func (m *Manifest) is(n *Manifest) bool { return m.ID == n.ID && m.Number == n.Number }

// look checks that the store has all of a savepoint.
func (m *Manifest) look(ctx context.Context, store checkpoint.Store) error {
	have, err := Find(ctx, store, m.Name)
	if errors.Is(err, ErrNone) || err == nil && !m.is(have) {
		return fmt.Errorf("savepoint %q: %w", m.Name, ErrLost)
	}
	if err != nil {
		return err
	}
	for i := range m.Stages {
		s := &m.Stages[i]
		for g := range s.At {
			at, err := store.Begin(ctx, m.Group(s.Name, g), cmp.Or(m.Claim, m.At)) // nothing writes there any more
			if err == nil {
				err = m.Whole(s, g, at)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
