package runtime

import (
	"context"
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/reread"
)

// entry processes one record of the input.
func (t *task) entry(ctx context.Context, e *sharedlog.Entry) error {
	kind, err := envelope.KindOf(e.Data)
	if err != nil {
		return err
	}
	if err := t.pos.Begin(e.LSN); err != nil {
		return err
	}
	switch kind {
	case envelope.Data:
		h, err := t.scratch.data.Open(e.Data)
		if err != nil {
			return err
		}
		take, err := t.in.inbox.Data(e.LSN, &h, e.Data)
		if err != nil {
			return err
		}
		if take == progress.Now {
			if err := t.deliver(ctx, &h); err != nil {
				return err
			}
		}
		t.done(e.LSN)
	case envelope.KindMarker:
		if err := t.scratch.marker.Parse(e.Data); err != nil {
			return err
		}
		held, fresh, err := t.in.inbox.Marker(e.LSN, &t.scratch.marker)
		if err != nil {
			return err
		}
		if err := t.count(ctx, held); err != nil {
			return err
		}
		t.done(e.LSN)
		if fresh {
			return t.advance(ctx)
		}
	case envelope.KindCheckpoint:
		var c envelope.Checkpoint
		if err := c.Parse(e.Data); err != nil {
			return err
		}
		t.committer.Completed(e.LSN, &c)
		held, err := t.in.inbox.Complete(e.LSN, &c)
		if err != nil {
			return err
		}
		if err := t.count(ctx, held); err != nil {
			return err
		}
		t.done(e.LSN)
		return t.advance(ctx)
	case envelope.KindProducers:
		var p envelope.Producers
		if err := p.Parse(e.Data); err != nil {
			return err
		}
		if e.LSN >= t.in.inbox.Position() {
			if err := t.in.table.Register(&p); err != nil {
				return err
			}
		}
		t.done(e.LSN)
		return t.advance(ctx)
	case envelope.KindPlan:
		return t.plan(ctx, e)
	default:
		return fmt.Errorf("a record of kind %d does not belong on a stream", kind)
	}
	return t.forced(ctx)
}

// count processes held records that now count.
func (t *task) count(ctx context.Context, held []progress.Held) error {
	if len(held) == 0 {
		return nil
	}
	again := reread.Reader{Log: t.cfg.Log, Tags: func() []sharedlog.Tag { return t.inputTags(t.cfg.Layout) }, Until: held[len(held)-1].LSN + 1}
	defer again.Close()
	for _, d := range held {
		err := again.Fill(ctx, &d)
		if err != nil {
			return err
		}
		t.pos.Record = d.LSN
		h, err := t.scratch.data.Open(d.Data)
		if err == nil {
			err = t.deliver(ctx, &h)
		}
		if err != nil {
			return fmt.Errorf("held record at LSN %d: %w", d.LSN, err)
		}
		if err := t.between(ctx); err != nil {
			return err
		}
	}
	return nil
}

// done moves the position behind a record.
func (t *task) done(lsn sharedlog.LSN) {
	t.in.inbox.Done(lsn)
	t.dirty, t.pos.Units = true, 0
	t.status.Position.Store(uint64(lsn + 1))
	t.consumed()
}

// consumed reports to the job's lead how far the task has consumed its input.
func (t *task) consumed() {
	if t.lead != nil && t.in.inbox != nil {
		t.lead.Consumed(t.stage, t.index, t.in.inbox.Low())
	}
}

// deliver passes the sections of the record that t.in is at through the chain. It skips sections of
// other tasks (because of a producer's stale hint, or because they share a packed record), and
// items that an earlier instance has processed.
func (t *task) deliver(ctx context.Context, h *envelope.Header) error {
	if int(h.Stream) >= len(t.input) || t.input[h.Stream] < 0 {
		return fmt.Errorf("stream %d is not an input of this stage", h.Stream)
	}
	in := &t.scratch.section
	in.Input, in.Task = t.input[h.Stream], int(h.Task)
	bytes, since := 0, 0 // since: units since the task last checked how much they made
	for {
		s, ok := t.scratch.data.Next()
		if !ok {
			break
		}
		if !t.counts(s.Group, t.pos.At) {
			continue
		}
		bytes += len(s.Data)
		in.Group, in.Items, in.Done = s.Group, s.Items, t.pos.Skipped(s.Items)
		if t.out.routes != nil {
			in.Group = t.out.routes.Home(s.Group)
		}
		for in.Done < in.Items {
			did, err := t.process(in, s.Data, t.out.step)
			if err != nil {
				return fmt.Errorf("stream %q, key group %d: %w", t.cfg.Layout.Plan.Streams[h.Stream].Name, s.Group, err)
			}
			t.dirty = true
			in.Done += did.Units
			since += did.Units
			t.pos.Units += uint64(did.Units)
			t.status.ItemsIn.Add(uint64(did.Units))
			t.status.Load[s.Group].Add(uint64(did.Units))
			if since >= t.out.step || t.fail.passed {
				if err := t.between(ctx); err != nil {
					return err
				}
				since = 0
			}
		}
	}
	t.status.BytesIn.Add(uint64(bytes))
	return t.scratch.data.Err()
}

// advance adopts another routing table, if that is due, and moves event time to the table's watermark. It commits between two timers if their output
// is too much for one commit, and ends the task when all producers have ended.
func (t *task) advance(ctx context.Context) error {
	if t.out.routes != nil && t.out.routes.Adopts(t.in.table.Epoch(), t.owned) {
		t.times.Now = t.cfg.Clock()
		if err := t.commit(ctx); err != nil {
			return err
		}
	}
	time, idle := t.capped(t.in.table.Lowest())
	if err := t.advanceTo(ctx, time); err != nil {
		return err
	}
	if idle != t.promise.Idle {
		t.promise.Idle, t.dirty = idle, true
	}
	return t.committer.Advanced(ctx)
}

// advanceTo moves event time to w.
func (t *task) advanceTo(ctx context.Context, w int64) error {
	for t.promise.Time < w {
		did, err := t.fire(w, func(b exec.Budget) (exec.Did, error) { return t.chain.Advance(exec.Bounds{Time: w}, b) })
		if err != nil {
			return err
		}
		t.dirty = true
		t.pos.Units += uint64(did.Units)
		if did.All {
			t.promise.Time, t.pos.Units = w, 0
			t.status.Watermark.Store(w)
		}
		if err := t.forced(ctx); err != nil {
			return err
		}
	}
	return nil
}
