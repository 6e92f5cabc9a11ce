package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
)

// Position is from where on the change log of a key group is to be read.
type Position struct {
	Tag  sharedlog.Tag
	From sharedlog.LSN
}

// Replay calls apply with the change records of some key groups that count, in the order of the log:
// up to until, or as they grow until ctx ends if until is 0. A record of several of the groups may
// be below the position of one of them. Replay calls reached with its progress: what counts below
// the LSN has been applied.
//
// No change log is read below its own position: groups that have come from other tasks are trimmed
// to other places than the task's own.
func Replay(ctx context.Context, log sharedlog.Log, changes checkpoint.ChangeLog, from []Position, until sharedlog.LSN,
	apply func(*sharedlog.Entry) error, reached func(sharedlog.LSN),
) error {
	from = slices.Clone(from)
	slices.SortStableFunc(from, func(a, b Position) int { return int(min(max(int64(a.From)-int64(b.From), -1), 1)) })
	var tags []sharedlog.Tag
	for i := 0; i < len(from); {
		at := from[i].From
		for ; i < len(from) && from[i].From == at; i++ {
			tags = append(tags, from[i].Tag)
		}
		o := sharedlog.ReaderOptions{Tags: tags, From: max(at, sharedlog.First), BelowFloor: true, Until: until}
		if i < len(from) {
			o.Until = max(from[i].From, sharedlog.First) // then the next group joins
			if until > 0 {
				o.Until = min(o.Until, until)
			}
		}
		if o.Until > 0 && o.Until <= o.From {
			continue
		}
		if err := replay(ctx, log, changes, o, apply, reached); err != nil {
			return err
		}
	}
	return nil
}

// replay reads the change logs with these tags from one place.
func replay(ctx context.Context, log sharedlog.Log, changes checkpoint.ChangeLog, o sharedlog.ReaderOptions,
	apply func(*sharedlog.Entry) error, reached func(sharedlog.LSN),
) (err error) {
	r, err := log.NewReader(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		b, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the change log: %w", err)
		}
		for i := range b.Entries {
			due, err := changes.Take(&b.Entries[i])
			for k := range due {
				if err == nil {
					err = apply(&due[k])
				}
			}
			if err != nil {
				return fmt.Errorf("change record at LSN %d: %w", b.Entries[i].LSN, err)
			}
		}
		reached(min(b.Frontier, changes.Low()))
	}
}
