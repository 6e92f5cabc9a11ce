package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/tags"
)

// HoldLease is how long a hold lasts without renewal. The trimming process judges by its own clock.
const HoldLease = 30 * time.Second

// hold is an entry of a job's holds in the metadata: a reader needs the job's change logs from From
// on, until the given time.
type hold struct {
	From  sharedlog.LSN `json:"from"`
	Until int64         `json:"until_ms"` // ms since 1970-01-01 UTC
}

// Hold is a lease that keeps a job's change logs from being trimmed while an outside reader uses
// them: a standby that loads, a savepoint in progress (pitfalls G4, G7). It is renewed until it is
// released; if its holder dies, it expires after HoldLease.
type Hold struct {
	log      sharedlog.Log
	job, who string
	from     sharedlog.LSN
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// TakeHold takes a hold on the change logs from an LSN on, as far as they have not been trimmed.
// who identifies the holder to people, and must be unique.
func TakeHold(ctx context.Context, log sharedlog.Log, job, who string, from sharedlog.LSN) (*Hold, error) {
	h := &Hold{log: log, job: job, who: who, from: from}
	if err := h.set(ctx, true); err != nil {
		return nil, err
	}
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.wg.Go(func() {
		tick := time.NewTicker(HoldLease / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				// A failed renewal is tried again; a reader that loses its hold gets ErrTrimmed and
				// starts over.
				_ = h.set(ctx, true)
			}
		}
	})
	return h, nil
}

// Release ends the hold.
func (h *Hold) Release() {
	h.stop()
	h.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = h.set(ctx, false) // if it cannot be removed, it expires
}

// set adds or removes the hold, and removes those that have expired.
func (h *Hold) set(ctx context.Context, on bool) error {
	key := tags.HoldsKey(h.job)
	c, err := h.log.Get(ctx, key)
	for err == nil {
		all, perr := parseHolds(c.Value)
		if perr != nil {
			return fmt.Errorf("metadata key %q: %w", key, perr)
		}
		now := time.Now()
		for who, o := range all {
			if o.Until <= now.UnixMilli() {
				delete(all, who)
			}
		}
		delete(all, h.who)
		if on {
			all[h.who] = hold{From: h.from, Until: now.Add(HoldLease).UnixMilli()}
		}
		var value []byte
		if len(all) > 0 {
			if value, err = json.Marshal(all); err != nil {
				return err
			}
		}
		if len(value) == 0 && len(c.Value) == 0 {
			return nil
		}
		c, err = h.log.CompareAndSet(ctx, key, c.Value, value)
		if err == nil {
			return nil
		}
		if errors.Is(err, sharedlog.ErrConflict) || errors.Is(err, sharedlog.ErrUnknown) && c.Place > 0 {
			err = nil // the holds have changed meanwhile: try again behind that
		}
	}
	return fmt.Errorf("hold the change logs of job %q: %w", h.job, err)
}

func parseHolds(b []byte) (map[string]hold, error) {
	all := map[string]hold{}
	if len(b) == 0 {
		return all, nil
	}
	return all, json.Unmarshal(b, &all)
}

// Held is the lowest of a job's holds; Who is empty if there is none.
type Held struct {
	From sharedlog.LSN
	Who  string
}

func lowestHold(ctx context.Context, log sharedlog.Log, job string, now time.Time) (low Held, err error) {
	key := tags.HoldsKey(job)
	c, err := log.Get(ctx, key)
	if err != nil {
		return low, err
	}
	all, err := parseHolds(c.Value)
	if err != nil {
		return low, fmt.Errorf("metadata key %q: %w", key, err)
	}
	for who, h := range all {
		if h.Until > now.UnixMilli() && (low.Who == "" || h.From < low.From || h.From == low.From && who < low.Who) {
			low = Held{h.From, who}
		}
	}
	return low, nil
}
