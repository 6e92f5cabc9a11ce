package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/tasks/meta"
)

// wait waits until the log accepts appends.
func (u *upFlags) wait(ctx context.Context, l *layout, ended <-chan string) error {
	return u.until(ctx, ended, func(ctx context.Context) error {
		_, closeLog, err := host.OpenLog(ctx, transport.Options{Cluster: l.Cluster}, client.Options{Sequencers: l.Sequencers, Name: "up"})
		if err == nil {
			err = closeLog()
		}
		for err == nil && !u.complete(ctx, l.Cluster, l.Sequencers, u.storage) {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				err = fmt.Errorf("the storage nodes are not all there: %w", ctx.Err())
			}
		}
		return err
	})
}

// until waits until ready returns nil; it fails if a process ends first.
func (u *upFlags) until(ctx context.Context, ended <-chan string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	is := make(chan error, 1)
	go func() { is <- ready(ctx) }()
	select {
	case err := <-is:
		return err
	case what := <-ended:
		return errors.New(what)
	}
}

// jobsReady waits until a manager leads and the workers are registered.
func (u *upFlags) jobsReady(ctx context.Context, l *layout) error {
	if u.managers == 0 {
		return nil
	}
	store, err := meta.Open(meta.Options{Endpoints: l.Etcd, Cluster: l.Cluster})
	if err != nil {
		return err
	}
	defer store.Close()
	for {
		v, err := store.Look(ctx)
		if err == nil && v.Manager.Name != "" && v.Cluster.ID != "" && len(v.Workers) >= u.workers {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no manager leads, or not all workers are there"), err, ctx.Err())
		}
	}
}
