package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// leaseTTL is how long a worker or manager that says nothing is listed, in seconds.
// etcd looks for expired leases every half a second, and its own election may double
// it, so nothing that has to be quick depends on it.
const leaseTTL = 2

// Stay keeps the worker registered until ctx ends: again and again, when its lease was
// lost (etcd was gone, or the process was stopped for a while), and takes it off the
// list at the end. trouble hears why it is not registered, nil when it is.
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

// session makes a lease that is kept alive until leave.
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

// leave ends a lease and removes what depends on it, if etcd is there to hear it.
func (s *Store) leave(session *concurrency.Session) {
	session.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = s.c.Revoke(ctx, session.Lease()) // it expires by itself
}
