package savepoint

import (
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
		err = errors.Join(err, drop(ctx, store, m.Name))
	}
	if err != nil {
		return err
	}
	return list(ctx, store, m.Name, []byte{1}) // that may have been lost, too
}

// look checks that the store has all of a savepoint.
func (m *Manifest) look(ctx context.Context, store checkpoint.Store) error {
	have, err := Find(ctx, store, m.Name)
	if errors.Is(err, ErrNone) || err == nil && (have.ID != m.ID || have.Number != m.Number) {
		return fmt.Errorf("savepoint %q: %w", m.Name, ErrLost)
	}
	if err != nil {
		return err
	}
	for i := range m.Stages {
		s := &m.Stages[i]
		for g := range s.At {
			at, err := store.Begin(ctx, m.Group(s.Name, g), m.At) // nothing writes there any more
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
