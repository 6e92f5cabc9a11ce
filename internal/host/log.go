package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

// OpenLog connects to the log of a cluster, given the addresses of its sequencers, and waits until
// it is ready or ctx ends. The returned function closes it. The client's name at the servers is
// o.Name with this host and process.
func OpenLog(ctx context.Context, t transport.Options, o client.Options) (sharedlog.Log, func() error, error) {
	d, err := transport.NewDialer(t)
	if err != nil {
		return nil, nil, err
	}
	o.Dialer, o.Name = d, processName(o.Name)
	l, err := client.Connect(ctx, o)
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	return l, func() error { return errors.Join(l.Close(), d.Close()) }, nil
}

// processName adds the host and the process id to name, so that equal processes can be told apart.
func processName(name string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s@%s:%d", name, host, os.Getpid())
}

// lazyLog opens a log when it is first needed: a process that is part of the log starts before the
// log is ready.
type lazyLog struct {
	transport transport.Options
	options   client.Options

	mu    sync.Mutex
	log   sharedlog.Log
	after func() error
}

func (l *lazyLog) open(ctx context.Context) (sharedlog.Log, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.log != nil {
		return l.log, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	l.log, l.after, err = OpenLog(ctx, l.transport, l.options)
	return l.log, err
}

func (l *lazyLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.log == nil {
		return nil
	}
	return l.after()
}
