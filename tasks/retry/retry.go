// Package retry repeats what a task cannot do without, and what fails while another process is away.
package retry

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Policy says what a repetition needs of its process.
type Policy struct {
	// Clock reads the wall clock.
	Clock  func() time.Time
	Logger *slog.Logger
}

// Do calls f until it succeeds or ctx ends, with growing delays, and logs some of the failures.
func (p Policy) Do(ctx context.Context, what string, f func(context.Context) error) error {
	wait, said := 50*time.Millisecond, time.Time{}
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if now := p.Clock(); now.Sub(said) > 10*time.Second {
			said = now
			p.Logger.Warn(what, "error", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
		wait = min(2*wait, 5*time.Second)
	}
}
