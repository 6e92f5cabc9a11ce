package server

import (
	"bytes"
	"context"

	"tailrace.dev/tailrace/sharedlog"
)

// confirmed is the log of a manager that appends plans. A manager that stands still (SIGSTOP) before it claims a job does not know that it was
// deposed meanwhile, and that its successor has answered what it is about to do. So it asks etcd behind the claim: if it leads then, each
// successor claims the job later, and knows the plans that it appends; if it does not, it appends none.
type confirmed struct {
	sharedlog.Log
	leads func(context.Context) error
}

func (r *term) confirmed() sharedlog.Log { return confirmed{r.opt.Log, r.leader.Leads} }

// CompareAndSet implements sharedlog.Log.
func (c confirmed) CompareAndSet(ctx context.Context, key string, old, new []byte) (sharedlog.Change, error) {
	set, err := c.Log.CompareAndSet(ctx, key, old, new)
	if bytes.Equal(set.Value, new) { // also if the reply was lost
		if err := c.leads(ctx); err != nil {
			return sharedlog.Change{}, err
		}
	}
	return set, err
}
