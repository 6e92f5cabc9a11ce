// Package txn commits the tasks of a job one by one, by transactions that a coordinator decides
// (docs/protocol-txn.md). Package tasks/txn has the coordinator's side.
package txn

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/commit/direct"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/txn"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

// Coordinator decides a task's transactions (package tasks/txn). Requests are idempotent: the task
// repeats a request that got no answer.
type Coordinator interface {
	Call(ctx context.Context, r *txnpb.Request) (*txnpb.Reply, error)
}

// commits implements runtime.Commits.
type commits struct {
	direct.Commits
	coordinator Coordinator
}

// New returns the committers of tasks whose transactions a coordinator decides.
func New(c Coordinator) runtime.Commits { return commits{coordinator: c} }

// New implements runtime.Commits.
func (c commits) New(e *runtime.Engine, _ runtime.Attempt) (runtime.Committer, error) {
	return &committer{Committer: direct.New(e), coordinator: c.coordinator}, nil
}

// committer commits by transactions. The task waits for the first phase; the second runs in the
// background until the task wants to append again.
type committer struct {
	*direct.Committer
	coordinator Coordinator
	added       map[part]bool // registered for the open transaction; nil: there is none
	second      *phase        // nil: none is in progress
	place       sharedlog.LSN // of the newest answer to the task
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

// Start implements runtime.Committer.
func (c *committer) Start(ctx context.Context) error {
	return c.Engine.Start(ctx, func(ctx context.Context, _ sharedlog.LSN) (sharedlog.LSN, error) {
		var err error
		c.place, err = c.ask(ctx, &txnpb.Request{Op: txn.Init})
		c.Engine.Reached(observe.TransactionBegun)
		return c.place, err
	})
}

// Flush implements runtime.Committer.
func (c *committer) Flush(ctx context.Context, commit uint64, records []sharedlog.Record) error {
	if err := c.add(ctx, commit, records); err != nil {
		return err
	}
	return c.Engine.Append(ctx, records, false)
}

// Marker implements runtime.Committer. A marker is in the log when its transaction was prepared, by
// a record that is above all answers before it. That record, or a later one, contains everything
// that is needed of the task's transaction stream.
func (c *committer) Marker(m *envelope.Marker) []sharedlog.Tag {
	m.Transactions = c.place
	return c.Committer.Marker(m)
}

// Commit implements runtime.Committer.
func (c *committer) Commit(ctx context.Context, number uint64, groups [][]sharedlog.Record, names bool) error {
	last := len(groups) - 1
	var records []sharedlog.Record
	for _, group := range groups[:last] {
		records = append(records, group...)
	}
	if err := c.add(ctx, number, records); err != nil {
		return err
	}
	for _, group := range groups[:last] {
		if err := c.Engine.Append(ctx, group, false); err != nil {
			return err
		}
	}
	if err := c.Engine.Acknowledged(ctx); err != nil {
		return err
	}
	c.Engine.Reached(observe.TransactionAppended)
	if names {
		c.Engine.Reached(observe.SnapshotNaming)
	}
	if _, err := c.ask(ctx, &txnpb.Request{Op: txn.Commit, Number: number, Marker: groups[last][0].Data}); err != nil {
		return err
	}
	c.Engine.Reached(observe.TransactionPrepared)
	if names {
		c.Engine.Reached(observe.SnapshotNamed)
	}
	c.Engine.Committed()
	c.added = nil
	ctx, cancel := context.WithCancel(ctx)
	p := &phase{done: make(chan struct{}), cancel: cancel}
	c.second = p
	await := &txnpb.Request{Op: txn.Await, Number: number}
	go func() {
		defer close(p.done)
		_, p.err = c.ask(ctx, await)
	}()
	return nil
}

// Drain implements runtime.Committer: it waits for the second phase in progress.
func (c *committer) Drain(ctx context.Context) error {
	if c.second == nil {
		return nil
	}
	select {
	case <-c.second.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := c.second.err
	c.Close()
	return err
}

// Close implements runtime.Committer.
func (c *committer) Close() {
	if c.second != nil {
		c.second.cancel()
		<-c.second.done
		c.second = nil
	}
}

// add registers the partitions that records are the first of a transaction to be written to, and
// with the first of them the task's progress.
func (c *committer) add(ctx context.Context, number uint64, records []sharedlog.Record) error {
	if err := c.Drain(ctx); err != nil {
		return err
	}
	spec, _ := c.Engine.Stage()
	l := c.Engine.Config().Layout
	r := &txnpb.Request{Op: txn.Add, Number: number}
	if c.added == nil {
		c.added = map[part]bool{}
		p := &txnpb.Partition{Of: txn.OfProgress}
		for _, out := range spec.Outputs {
			p.Outputs = append(p.Outputs, l.Plan.Streams[out].Name)
		}
		r.Partitions = append(r.Partitions, p)
	}
	var in envelope.Sections
	for i := range records {
		h, err := in.Open(records[i].Data)
		if err != nil {
			return err
		}
		kind, err := envelope.KindOf(records[i].Data)
		if err != nil {
			return err
		}
		sec, ok := in.Next()
		if !ok && kind == envelope.Data {
			continue
		}
		p := part{of: txn.OfChanges}
		if kind == envelope.Data {
			p = part{txn.OfData, int(h.Stream), 0}
			if owner := l.Streams[h.Stream].Owner; owner != nil {
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
	c.Engine.Reached(observe.TransactionAdded)
	return err
}

// partition describes a part to the coordinator.
func (c *committer) partition(p part) *txnpb.Partition {
	if p.of == txn.OfChanges {
		m := &txnpb.Partition{Of: p.of}
		owned, _ := c.Engine.Owned()
		for _, g := range owned {
			m.Groups = append(m.Groups, uint32(g))
		}
		return m
	}
	l := c.Engine.Config().Layout
	s := &l.Streams[p.stream]
	m := &txnpb.Partition{Of: p.of, Stream: uint32(p.stream), Name: l.Plan.Streams[p.stream].Name}
	for g := range s.Groups {
		if s.Owner == nil || s.Owner[g] == p.owner {
			m.Groups = append(m.Groups, uint32(g))
		}
	}
	return m
}

// ask repeats a request to the coordinator until there is an answer.
func (c *committer) ask(ctx context.Context, r *txnpb.Request) (sharedlog.LSN, error) {
	cfg := c.Engine.Config()
	spec, stage := c.Engine.Stage()
	r.Job, r.Stage, r.StageIndex, r.Task, r.Instance = cfg.Layout.Job, spec.Name, uint32(stage), uint32(c.Engine.Index()), c.Engine.Instance()
	var reply *txnpb.Reply
	var final error
	err := cfg.Retry(ctx, "no transaction coordinator answers; the task waits for one", func(ctx context.Context) (err error) {
		if reply, err = c.coordinator.Call(ctx, r); err != nil && !txn.Again(err) {
			final, err = fmt.Errorf("transaction coordinator: %w", err), nil
		}
		return err
	})
	switch {
	case err != nil || final != nil:
		return 0, errors.Join(err, final)
	case reply.Outcome == txn.Fenced:
		return 0, fmt.Errorf("%w (this was instance %d; %s)", runtime.ErrFenced, r.Instance, reply.Text)
	case reply.Outcome != txn.OK:
		return 0, fmt.Errorf("transaction coordinator: %s", reply.Text)
	}
	return sharedlog.LSN(reply.Place), nil
}
