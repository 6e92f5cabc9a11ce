// Package control appends the plans of a job. One process at a time does: it holds the job's manager
// key, and its appends have no effect once another process holds it (pitfall L10). So the plans of a
// job are a sequence of which each knows the one before.
package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/tags"
)

// Control appends the plans of one job. It is not safe for concurrent use.
type Control struct {
	log sharedlog.Log
	job string
	w   *sharedlog.Writer
	// Plan is the newest plan and At the LSN of its record; nil: the job has none.
	Plan *envelope.Plan
	At   sharedlog.LSN
}

// ErrDeleted is in the error of Claim when there is no such job any more.
var ErrDeleted = errors.New("it was deleted")

// Claim makes the caller, which a random nonce identifies, the one that appends the job's plans. A job that is not there stays so: what would be
// set for a deleted one is never removed.
func Claim(ctx context.Context, log sharedlog.Log, job string, nonce uint64) (*Control, error) {
	return claim(ctx, log, job, nonce, ErrDeleted)
}

// Create is Claim of a job that need not be there.
func Create(ctx context.Context, log sharedlog.Log, job string, nonce uint64) (*Control, error) {
	return claim(ctx, log, job, nonce, nil)
}

func claim(ctx context.Context, log sharedlog.Log, job string, nonce uint64, absent error) (*Control, error) {
	key := tags.ManagerKey(job)
	mine := binary.LittleEndian.AppendUint64(nil, nonce)
	c, err := log.Get(ctx, key)
	for err == nil {
		if len(c.Value) == 0 && absent != nil {
			err = absent
			break
		}
		c, err = log.CompareAndSet(ctx, key, c.Value, mine)
		lost := errors.Is(err, sharedlog.ErrConflict) || errors.Is(err, sharedlog.ErrUnknown) && c.Place > 0
		if lost && !bytes.Equal(c.Value, mine) {
			err = nil // another process became it in between: append after it
			continue
		}
		break
	}
	if err != nil && !bytes.Equal(c.Value, mine) {
		return nil, fmt.Errorf("become manager of job %q: %w", job, err)
	}
	n := &Control{log: log, job: job}
	n.w = sharedlog.NewWriter(log, fmt.Sprintf("%s/manager#%x", job, mine), sharedlog.Condition{Key: key, Value: mine})
	n.Plan, n.At, err = records.LastPlan(ctx, log, job, c.Place)
	return n, err
}

// Append appends the next plan, and with it the producers of those streams whose producing tasks it
// changes. It fails if another process has become the one that appends plans.
func (c *Control) Append(ctx context.Context, p *envelope.Plan, l *layout.Layout, streams []int) error {
	group := []sharedlog.Record{{Tags: []sharedlog.Tag{tags.Control(c.job)}, Data: p.Append(nil)}}
	for _, i := range streams {
		s := &l.Streams[i]
		r := envelope.Producers{Stream: uint32(i), Stage: uint32(s.Producer), Tasks: l.Stages[s.Producer].Tasks, Epoch: p.Epoch}
		if p.Number > 1 {
			r.Plan = p.Number
		}
		group = append(group, sharedlog.Record{Tags: []sharedlog.Tag{s.All}, Data: r.Append(nil)})
	}
	at, err := c.w.Append(group...).Wait(ctx)
	if err != nil {
		return fmt.Errorf("write the plan of job %q: %w", c.job, err)
	}
	c.Plan, c.At = p, at
	return nil
}
