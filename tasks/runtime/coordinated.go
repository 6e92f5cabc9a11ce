package runtime

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/txn"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

// Coordinator decides a task's transactions (package txn). Requests are idempotent: the task
// repeats a request that got no answer.
type Coordinator interface {
	Call(ctx context.Context, r *txnpb.Request) (*txnpb.Reply, error)
}

// newCommitter returns the protocol's committer.
func newCommitter(t *task) committer {
	if _, ok := t.cfg.Protocol.(progress.Coordinated); ok {
		return &coordinated{t: t}
	}
	return direct{t}
}

// coordinated commits by transactions (docs/protocol-txn.md). The task waits for the first phase;
// the second runs in the background until the task wants to append again.
type coordinated struct {
	t      *task
	added  map[part]bool // registered for the open transaction; nil: there is none
	second *phase        // nil: none is in progress
	place  sharedlog.LSN // of the newest answer to the task
}

// part names a partition: the part of a stream that one task consumes, or the state changes.
type part struct {
	of     uint32
	stream int
	owner  int
}

// phase is a second phase in progress.
type phase struct {
	done   chan struct{}
	err    error
	cancel context.CancelFunc
}

func (c *coordinated) begin(ctx context.Context, _ sharedlog.LSN) (sharedlog.LSN, error) {
	var err error
	c.place, err = c.ask(ctx, &txnpb.Request{Op: txn.Init})
	crash.Here(crash.TransactionBegun)
	return c.place, err
}

func (c *coordinated) flush(ctx context.Context, commit uint64, records []sharedlog.Record) error {
	if err := c.add(ctx, commit, records); err != nil {
		return err
	}
	return c.t.append(ctx, records, false)
}

func (c *coordinated) commit(ctx context.Context, groups [][]sharedlog.Record, names bool) error {
	last := len(groups) - 1
	var records []sharedlog.Record
	for _, group := range groups[:last] {
		records = append(records, group...)
	}
	if err := c.add(ctx, c.t.number, records); err != nil {
		return err
	}
	for _, group := range groups[:last] {
		if err := c.t.append(ctx, group, false); err != nil {
			return err
		}
	}
	if err := c.t.acknowledged(ctx); err != nil {
		return err
	}
	crash.Here(crash.TransactionAppended)
	if names {
		crash.Here(crash.SnapshotNaming)
	}
	if _, err := c.ask(ctx, &txnpb.Request{Op: txn.Commit, Number: c.t.number, Marker: groups[last][0].Data}); err != nil {
		return err
	}
	crash.Here(crash.TransactionPrepared)
	if names {
		crash.Here(crash.SnapshotNamed)
	}
	if c.t.results {
		c.t.resulted()
	}
	c.added = nil
	ctx, cancel := context.WithCancel(ctx)
	p := &phase{done: make(chan struct{}), cancel: cancel}
	c.second = p
	await := &txnpb.Request{Op: txn.Await, Number: c.t.number}
	go func() {
		defer close(p.done)
		_, p.err = c.ask(ctx, await)
	}()
	return nil
}

// drain waits for the second phase in progress.
func (c *coordinated) drain(ctx context.Context) error {
	if c.second == nil {
		return nil
	}
	select {
	case <-c.second.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := c.second.err
	c.close()
	return err
}

// kept: a marker is in the log when its transaction was prepared, by a record that is above all
// answers before it. That record, or a later one, contains everything that is needed.
func (c *coordinated) kept() sharedlog.LSN { return c.place }

func (c *coordinated) close() {
	if c.second != nil {
		c.second.cancel()
		<-c.second.done
		c.second = nil
	}
}

// add registers the partitions that records are the first of a transaction to be written to, and
// with the first of them the task's progress.
func (c *coordinated) add(ctx context.Context, number uint64, records []sharedlog.Record) error {
	if err := c.drain(ctx); err != nil {
		return err
	}
	t := c.t
	r := &txnpb.Request{Op: txn.Add, Number: number}
	if c.added == nil {
		c.added = map[part]bool{}
		p := &txnpb.Partition{Of: txn.OfProgress}
		for _, out := range t.spec.Outputs {
			p.Outputs = append(p.Outputs, t.cfg.Layout.Plan.Streams[out].Name)
		}
		r.Partitions = append(r.Partitions, p)
	}
	var in envelope.Sections
	for i := range records {
		h, err := in.Open(records[i].Data)
		if err != nil {
			return err
		}
		sec, ok := in.Next()
		if !ok {
			continue
		}
		kind, err := envelope.KindOf(records[i].Data)
		if err != nil {
			return err
		}
		p := part{of: txn.OfChanges}
		if kind == envelope.Data {
			p = part{txn.OfData, int(h.Stream), 0}
			if owner := t.cfg.Layout.Streams[h.Stream].Owner; owner != nil {
				p.owner = owner[sec.Group]
			}
		}
		if !c.added[p] {
			c.added[p] = true
			r.Partitions = append(r.Partitions, c.partition(p))
		}
	}
	if len(r.Partitions) == 0 {
		return nil
	}
	var err error
	c.place, err = c.ask(ctx, r)
	crash.Here(crash.TransactionAdded)
	return err
}

// partition describes a part to the coordinator.
func (c *coordinated) partition(p part) *txnpb.Partition {
	if p.of == txn.OfChanges {
		m := &txnpb.Partition{Of: p.of}
		for _, g := range c.t.owned {
			m.Groups = append(m.Groups, uint32(g))
		}
		return m
	}
	s := &c.t.cfg.Layout.Streams[p.stream]
	m := &txnpb.Partition{Of: p.of, Stream: uint32(p.stream), Name: c.t.cfg.Layout.Plan.Streams[p.stream].Name}
	for g := range s.Groups {
		if s.Owner == nil || s.Owner[g] == p.owner {
			m.Groups = append(m.Groups, uint32(g))
		}
	}
	return m
}

// ask repeats a request to the coordinator until there is an answer.
func (c *coordinated) ask(ctx context.Context, r *txnpb.Request) (sharedlog.LSN, error) {
	t := c.t
	r.Job, r.Stage, r.StageIndex, r.Task, r.Instance = t.cfg.Layout.Job, t.spec.Name, uint32(t.stage), uint32(t.index), t.instance
	var reply *txnpb.Reply
	var final error
	err := retry(ctx, t.cfg.Logger, "no transaction coordinator answers; the task waits for one", func(ctx context.Context) (err error) {
		if reply, err = t.cfg.Coordinator.Call(ctx, r); err != nil && !txn.Again(err) {
			final, err = fmt.Errorf("transaction coordinator: %w", err), nil
		}
		return err
	})
	switch {
	case err != nil || final != nil:
		return 0, errors.Join(err, final)
	case reply.Outcome == txn.Fenced:
		return 0, fmt.Errorf("%w (this was instance %d; %s)", ErrFenced, t.instance, reply.Text)
	case reply.Outcome != txn.OK:
		return 0, fmt.Errorf("transaction coordinator: %s", reply.Text)
	}
	return sharedlog.LSN(reply.Place), nil
}
