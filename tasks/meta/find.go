package meta

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tailrace.dev/tailrace/sharedlog"
)

// endpoints is the key of the log's metadata that says where the cluster's etcd is.
const endpoints = "etcd"

// Announce writes into the log where etcd is, so that nobody needs to be told.
func Announce(ctx context.Context, log sharedlog.Log, addrs []string) error {
	want := strings.Join(addrs, ",")
	c, err := log.Get(ctx, endpoints)
	for err == nil && string(c.Value) != want {
		c, err = log.CompareAndSet(ctx, endpoints, c.Value, []byte(want))
		if errors.Is(err, sharedlog.ErrConflict) || errors.Is(err, sharedlog.ErrUnknown) && c.Place > 0 {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("write down where etcd is: %w", err)
	}
	return nil
}

// Find reads from the log where etcd is; empty: nobody has said so.
func Find(ctx context.Context, log sharedlog.Log) ([]string, error) {
	c, err := log.Get(ctx, endpoints)
	if err != nil || len(c.Value) == 0 {
		return nil, err
	}
	return strings.Split(string(c.Value), ","), nil
}
