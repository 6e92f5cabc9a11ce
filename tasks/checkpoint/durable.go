package checkpoint

import (
	"context"
	"time"

	"tailrace.dev/tailrace/sharedlog"
)

// syncer is a log that can make durable what it has acknowledged. sharedlog/embedded has
// such a log; what a cluster acknowledges is durable already.
type syncer interface {
	Sync(ctx context.Context, below sharedlog.LSN) error
}

// Durable waits until a power cut cannot take from the log what lies below an LSN, which is
// at most the log's tail. A position that a store keeps, as a token or as the end of what it
// has, must be durable first: else the log could end below it. A log that syncs once in a
// while, or never, syncs now.
func Durable(ctx context.Context, log sharedlog.Log, below sharedlog.LSN) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for log.Stats().Durable < below {
		if s, ok := log.(syncer); ok {
			if err := s.Sync(ctx, below); err != nil {
				return err
			}
		} else if _, err := log.Tail(ctx); err != nil { // brings a client's Stats up to date
			return err
		}
		if log.Stats().Durable >= below {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Settle waits until a store cannot lose any more what it acknowledged before.
func Settle(ctx context.Context, store Store) error {
	t := time.NewTimer(store.Settles())
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
