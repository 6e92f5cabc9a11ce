package host_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/etcdserver"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/tasks/meta"
)

// Two managers, of which one leads, end within seconds when they are asked to, although
// etcd and all processes of the log are gone.
func TestManagersEndWhenAllElseIsGone(t *testing.T) {
	c := newLocal(t, 1, 1)
	c.primaries(t, 1)
	etcd, err := etcdserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	gone := false
	defer func() {
		if !gone {
			etcd.Close()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const managers = 2
	ended := make(chan error, managers)
	for i := range managers {
		m := &host.Manager{
			Common: c.common("127.0.0.1:0"),
			Name:   fmt.Sprint("manager-", i), Sequencers: c.sequencers, Etcd: []string{etcd.Addr()}, Wait: time.Minute, TrimInterval: 10 * time.Millisecond,
		}
		go func() { ended <- m.Run(ctx) }()
	}
	store, err := meta.Open(meta.Options{Endpoints: []string{etcd.Addr()}, Cluster: "test"})
	require.NoError(t, err)
	defer store.Close()
	require.Eventually(t, func() bool {
		v, err := store.Look(t.Context())
		return err == nil && v.Manager.Name != ""
	}, time.Minute, 10*time.Millisecond)
	etcd.Close()
	gone = true
	c.stop()
	cancel()
	limit := time.After(3 * time.Minute)
	for range managers {
		select {
		case <-ended: // an error may say that something could not be closed in order
		case <-limit:
			t.Fatal("a manager has not ended")
		}
	}
}
