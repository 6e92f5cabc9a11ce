package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// leaseTTL is how long a worker or manager that does not renew its lease stays listed, in seconds.
// etcd looks for expired leases every half a second, and an election of etcd's own may double it,
// so nothing that must be quick depends on it.
const leaseTTL = 2

// Stay keeps the worker registered until ctx ends, and then removes it from the list. It registers
// again whenever the lease was lost (etcd was unavailable, or the process was stopped for a while).
// It calls trouble with the reason when the worker is not registered, and with nil when it is.
func (s *Store) Stay(ctx context.Context, w Worker, trouble func(error)) {
	for ctx.Err() == nil {
		err := s.stay(ctx, w, trouble)
		if err != nil && ctx.Err() == nil {
			trouble(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *Store) stay(ctx context.Context, w Worker, trouble func(error)) error {
	b, err := json.Marshal(w)
	if err != nil {
		return err
	}
	session, err := s.session(ctx)
	if err != nil {
		return err
	}
	defer s.leave(session)
	try, cancel := context.WithTimeout(ctx, patience)
	_, err = s.c.Put(try, s.prefix+"worker/"+w.Name, string(b), clientv3.WithLease(session.Lease()))
	cancel()
	if err != nil {
		return s.fail("register worker "+w.Name, err)
	}
	trouble(nil)
	select {
	case <-ctx.Done():
		return nil
	case <-session.Done():
		return s.fail("keep worker "+w.Name+" registered", fmt.Errorf("the lease was lost"))
	}
}

// session creates a lease that is renewed until leave.
func (s *Store) session(ctx context.Context) (*concurrency.Session, error) {
	try, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lease, err := s.c.Grant(try, leaseTTL)
	if err != nil {
		return nil, s.fail("get a lease", err)
	}
	session, err := concurrency.NewSession(s.c, concurrency.WithLease(lease.ID), concurrency.WithTTL(leaseTTL))
	if err != nil {
		return nil, s.fail("get a lease", err)
	}
	return session, nil
}

// leave ends a lease and removes its keys, if etcd is available.
func (s *Store) leave(session *concurrency.Session) {
	session.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = s.c.Revoke(ctx, session.Lease()) // it expires by itself
}
