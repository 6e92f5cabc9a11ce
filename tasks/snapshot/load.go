package snapshot

import (
	"context"
	"runtime"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
)

// loaded is what a loader passes to the caller of Load.
type loaded struct {
	of      int
	entries []checkpoint.Entry
	applied chan struct{}
}

// loaders is how many key groups are read concurrently; the caller itself applies them, one batch
// after the other.
const loaders = 4

// Load makes token the only writer of some key groups in a store, and then reads their snapshots,
// which do not change any more. It calls apply, in the caller's goroutine, with the entries of
// groups[i], batch by batch; the first error ends it. at[i] is the LSN up to which the snapshot of
// groups[i] has the group's change log, 0 if there is none.
func Load(ctx context.Context, store checkpoint.Store, groups []checkpoint.Group, token sharedlog.LSN, apply func(i int, entries []checkpoint.Entry) error) (at []sharedlog.LSN, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	at = make([]sharedlog.LSN, len(groups))
	work, found := make(chan int), make(chan loaded)
	var wg sync.WaitGroup
	for range min(loaders, len(groups), 2*runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range work {
				applied := make(chan struct{})
				_, err := store.Begin(ctx, groups[i], token)
				if err == nil {
					at[i], err = store.Load(ctx, groups[i], func(es []checkpoint.Entry) error {
						select {
						case found <- loaded{i, es, applied}:
						case <-ctx.Done():
							return ctx.Err()
						}
						<-applied
						return nil
					})
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	go func() {
		defer close(found)
		for i := range groups {
			select {
			case work <- i:
			case <-ctx.Done():
			}
		}
		close(work)
		wg.Wait()
	}()
	var failed error
	one := func(l *loaded) {
		defer func() { l.applied <- struct{}{} }() // also when a serde of the job panics
		if failed == nil {
			failed = apply(l.of, l.entries)
		}
	}
	for l := range found {
		one(&l)
		if failed != nil {
			cancel(failed)
		}
	}
	if failed != nil {
		return nil, failed
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return at, nil
}
