package host_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// replicas returns the nodes that hold a shard.
func (c *local) replicas(t testing.TB, shard uint32) (nodes []int) {
	d, err := transport.NewDialer(transport.Options{Cluster: "test"})
	require.NoError(t, err)
	defer d.Close()
	s := new(logpb.SequencerStatus)
	require.NoError(t, d.Call(t.Context(), c.sequencers[0], "sequencer/status", new(logpb.StatusRequest), s))
	for _, sh := range s.GetShards() {
		if sh.GetId() == shard {
			for _, a := range sh.GetAddrs() {
				nodes = append(nodes, slices.Index(c.storage, a))
			}
		}
	}
	return nodes
}

// All replicas of a shard are down, with their disks, for longer than the sequencers keep events in
// memory. When they are back nothing that was acknowledged is missing: the sequencers have the
// events on disk.
func TestAllReplicasAreAway(t *testing.T) {
	c := newLocalAs(t, 3, 5, func(c *local) {
		c.settings = func(s *host.Sequencer) { s.HistoryEvents = 10 }
	})
	c.primaries(t, 5)
	l := c.open(t)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var mu sync.Mutex
	acked := map[string]bool{}
	write := func(writer string, groups int) error {
		w := sharedlog.NewWriter(l, writer, sharedlog.Condition{})
		for n := range groups {
			data := fmt.Sprint(writer, " ", n)
			if _, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: []byte(data)}).Wait(ctx); err != nil {
				return fmt.Errorf("%s: %w", data, err)
			}
			mu.Lock()
			acked[data] = true
			mu.Unlock()
		}
		return nil
	}
	for i := range 20 {
		require.NoError(t, write(fmt.Sprint("before", i), 3))
	}
	away := c.replicas(t, 1)
	require.Len(t, away, 3)
	for _, i := range away {
		c.end(fmt.Sprint("storage", i))
	}
	// The other two nodes continue. An append in flight to one of the three gets its answer when
	// they are back.
	written := make(chan error, 10)
	for i := range cap(written) {
		go func() { written <- write(fmt.Sprint("meanwhile", i), 5) }()
	}
	for i := range 100 {
		_, err := l.CompareAndSet(ctx, fmt.Sprint("k", i), nil, []byte("v"))
		require.NoError(t, err)
	}
	for _, i := range away {
		c.node(i)
	}
	for range cap(written) {
		require.NoError(t, <-written)
	}
	r, err := l.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"all"}})
	require.NoError(t, err)
	defer r.Close()
	for len(acked) > 0 {
		b, err := r.Next(ctx)
		require.NoError(t, err, "%d records that were acknowledged are missing", len(acked))
		for _, e := range b.Entries {
			delete(acked, string(e.Data))
		}
	}
}
