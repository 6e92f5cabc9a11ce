package checkpoint

import (
	"context"
	"time"

	"tailrace.dev/tailrace/sharedlog"
)

// syncer is a log that can make durable what it has acknowledged. sharedlog/embedded has such a
// log; a cluster's acknowledgements are durable already.
type syncer interface {
	Sync(ctx context.Context, below sharedlog.LSN) error
}

// Durable waits until a power failure cannot remove from the log what lies below an LSN, which must
// not be above the log's tail. A position that a store keeps, as a token or as the end of its
// contents, must be durable first: otherwise the log could end below it. A log that syncs only
// occasionally, or never, syncs now.
func Durable(ctx context.Context, log sharedlog.Log, below sharedlog.LSN) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for log.Stats().Durable < below {
		if s, ok := log.(syncer); ok {
			if err := s.Sync(ctx, below); err != nil {
				return err
			}
		} else if _, err := log.Tail(ctx); err != nil { // updates a client's Stats
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

// AwaitLossWindow waits until a store can no longer lose what it has acknowledged so far.
func AwaitLossWindow(ctx context.Context, store Store) error {
	t := time.NewTimer(store.LossWindow())
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
