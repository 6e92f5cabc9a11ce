package host

import (
	"context"
	"errors"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

// OpenLog connects to the log of a cluster, given the addresses of its sequencers,
// and waits until it is ready or ctx ends. The returned function closes it.
func OpenLog(ctx context.Context, t transport.Options, o client.Options) (sharedlog.Log, func() error, error) {
	d, err := transport.NewDialer(t)
	if err != nil {
		return nil, nil, err
	}
	o.Dialer = d
	l, err := client.Open(ctx, o)
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	return l, func() error { return errors.Join(l.Close(), d.Close()) }, nil
}
