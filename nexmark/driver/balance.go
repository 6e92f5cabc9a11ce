package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/tasks"
)

// CheckBalance fills in the stage of Balance and refuses what is impossible. It opens nothing.
func (s *Settings) CheckBalance() error {
	if s.Balance == nil {
		return nil
	}
	check, err := s.rescalable()
	if err == nil {
		err = s.Balance.Check()
	}
	if err == nil {
		err = check(&s.Balance.Stage, 1)
	}
	return err
}

// balance asks a job for the Balance, and tells of its newest step, ten times a second, until stop. read
// returns what has been measured and done, nil without a Balance.
func (s *Settings) balance(ctx context.Context, job *tasks.Job) (read func() *tasks.Balanced, stop func(), err error) {
	if s.Balance == nil {
		return func() *tasks.Balanced { return nil }, func() {}, nil
	}
	read = func() *tasks.Balanced {
		if all := job.Balanced(); len(all) > 0 {
			return &all[0]
		}
		return nil
	}
	if err := job.Balance(*s.Balance); err != nil {
		if errors.Is(err, tasks.ErrEnded) {
			err = nil
		}
		return read, func() {}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		told := 0
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			if b := read(); b != nil && b.Switches > told && s.OnBalance != nil {
				told = b.Switches
				s.OnBalance(fmt.Sprintf("balance %s: %d of %d key groups moved, degree %.2f, planned %.2f, %.1f ms",
					b.Stage, b.Newest.GroupsMoved, b.KeyGroups, b.Newest.Degree, b.Newest.Planned, b.Newest.SettledMS))
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return read, func() { cancel(); <-over }, nil
}
