package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Leader is a won election. Its writes take effect only while it leads.
type Leader struct {
	s       *Store
	session *concurrency.Session
	guard   clientv3.Cmp
}

// ErrDeposed is in the error of a write of a manager that no longer leads.
var ErrDeposed = errors.New("another manager leads")

// Campaign waits until this manager leads, or ctx ends.
func (s *Store) Campaign(ctx context.Context, m Manager) (*Leader, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	session, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	e := concurrency.NewElection(session, s.prefix+"manager")
	won := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { won <- e.Campaign(ctx, string(b)) }()
	// When its context ends, etcd's Campaign withdraws its candidacy, and waits for etcd as long as
	// the client is open. Do not wait for it: the end of the lease withdraws it too.
	select {
	case err = <-won:
	case <-session.Done():
		err = errors.New("the lease was lost")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.leave(session)
		return nil, s.fail("campaign", err)
	}
	return &Leader{s: s, session: session, guard: clientv3.Compare(clientv3.CreateRevision(e.Key()), "=", e.Rev())}, nil
}

// Done is closed when it no longer leads, as far as it knows.
func (l *Leader) Done() <-chan struct{} { return l.session.Done() }

// Resign lets another manager lead.
func (l *Leader) Resign() { l.s.leave(l.session) }

// Begin creates the Cluster record if there is none, and returns it.
func (l *Leader) Begin(ctx context.Context, c Cluster) (Cluster, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return c, err
	}
	key := l.s.prefix + "cluster"
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := l.s.c.Txn(ctx).If(l.guard, clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(b))).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return c, l.s.fail("begin", err)
	}
	if r.Succeeded {
		return c, nil
	}
	kvs := r.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return c, l.s.fail("begin", ErrDeposed)
	}
	err = json.Unmarshal(kvs[0].Value, &c)
	return c, err
}

// Change is one write of a manager: either State or Assign is set.
type Change struct {
	Job    string // of State
	State  *State
	Assign *Assignment
}

// opsPerTxn is below etcd's limit of 128.
const opsPerTxn = 100

// Write writes changes, in order; a long list takes several transactions.
func (l *Leader) Write(ctx context.Context, changes []Change) error {
	var ops []clientv3.Op
	for _, c := range changes {
		op, err := l.op(c)
		if err != nil {
			return err
		}
		ops = append(ops, op)
	}
	for len(ops) > 0 {
		n := min(len(ops), opsPerTxn)
		if err := l.txn(ctx, ops[:n]); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// Leads returns ErrDeposed if it leads no more.
func (l *Leader) Leads(ctx context.Context) error { return l.txn(ctx, nil) }

func (l *Leader) txn(ctx context.Context, ops []clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := l.s.c.Txn(ctx).If(l.guard).Then(ops...).Commit()
	switch {
	case err != nil:
		return l.s.fail("write", err)
	case !r.Succeeded:
		return l.s.fail("write", ErrDeposed)
	}
	return nil
}

func (l *Leader) op(c Change) (clientv3.Op, error) {
	var path string
	var value any
	switch {
	case c.State != nil:
		path, value = "state/"+c.Job, c.State
	case c.Assign != nil:
		path, value = taskPath(c.Assign.Key()), c.Assign
	default:
		return clientv3.Op{}, fmt.Errorf("a change of nothing") // a bug
	}
	b, err := json.Marshal(value)
	return clientv3.OpPut(l.s.prefix+path, string(b)), err
}
