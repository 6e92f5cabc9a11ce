package meta

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tailrace.dev/tailrace/sharedlog"
)

// endpoints is the key of the log's metadata that has the addresses of the cluster's etcd.
const endpoints = "etcd"

// Announce writes the addresses of etcd into the log, so that no process needs them as a setting.
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

// ErrNoManager is in the error of Connect when the log does not have the addresses of etcd yet.
var ErrNoManager = errors.New("the cluster has no task manager yet: start one (tailrace manager, tailrace up)")

// Find reads the addresses of etcd from the log; ErrNoManager if the log does not have them.
func Find(ctx context.Context, log sharedlog.Log) ([]string, error) {
	c, err := log.Get(ctx, endpoints)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the log where etcd is: %w", err)
	case len(c.Value) == 0:
		return nil, ErrNoManager
	}
	return strings.Split(string(c.Value), ","), nil
}

// Connect opens a store and waits until etcd answers, or ctx ends. Without Endpoints it uses the
// addresses in the log; otherwise log may be nil.
func Connect(ctx context.Context, log sharedlog.Log, o Options) (*Store, error) {
	if len(o.Endpoints) == 0 {
		var err error
		if o.Endpoints, err = Find(ctx, log); err != nil {
			return nil, err
		}
	}
	s, err := Open(o)
	if err != nil {
		return nil, err
	}
	if err := s.Check(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
