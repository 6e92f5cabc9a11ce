package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

func (c *local) leader(t testing.TB) *logpb.SequencerStatus {
	d, err := transport.NewDialer(transport.Options{Cluster: "test"})
	require.NoError(t, err)
	defer d.Close()
	for _, addr := range c.sequencers {
		s := new(logpb.SequencerStatus)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := d.Call(ctx, addr, "sequencer/status", new(logpb.StatusRequest), s)
		cancel()
		if err == nil && s.GetLeader().GetMe() {
			return s
		}
	}
	return nil
}

// The tables of a cluster stay bounded while shards are opened and forgotten and tags are written,
// trimmed and never used again; forgetting does not disturb readers and writers.
func TestTablesOfAClusterStayBounded(t *testing.T) {
	c := newLocalAs(t, 1, 2, func(c *local) {
		c.shardBytes = 32 << 10
		c.settings = func(s *host.Sequencer) { s.ForgetAfter = time.Millisecond }
	})
	l := c.open(t)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
	data := make([]byte, 4<<10)
	var last sharedlog.LSN
	begun := time.Now()
	for i := 0; ; i++ {
		tag := sharedlog.Tag(fmt.Sprint("t", i))
		p := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: data})
		lsn, err := p.Wait(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Trim(ctx, tag, lsn+1))
		last = lsn
		if i%10 > 0 {
			continue
		}
		s := c.leader(t)
		if s.GetTables().GetOpened() >= 8 && s.GetTables().GetFloor() > 20 {
			break
		}
		require.Less(t, time.Since(begun), time.Minute, "%v", s.GetTables())
	}
	require.Eventually(t, func() bool {
		s := c.leader(t)
		tables := s.GetTables()
		return tables.GetShards() < 8 && tables.GetShards() < tables.GetOpened() && tables.GetTrims() < uint64(last)/2
	}, time.Minute, 20*time.Millisecond, "%v", c.leader(t).GetTables())
	// A reader below the floor gets an error; one from Oldest starts at the floor.
	floor := sharedlog.LSN(c.leader(t).GetTables().GetFloor())
	_, err := logtest.Read(ctx, l, 1, last, "t1")
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
	_, ok, err := l.Last(ctx, "t1", last)
	require.False(t, ok && err == nil)
	fresh, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"fresh"}}).Wait(ctx)
	require.NoError(t, err)
	e, ok, err := l.Last(ctx, "fresh", fresh+1)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, fresh, e.LSN)
	_, ok, err = l.Last(ctx, "never used", fresh+1)
	require.NoError(t, err)
	require.False(t, ok)
	for _, o := range []sharedlog.ReaderOptions{{From: sharedlog.Oldest}, {From: 1, BelowFloor: true}, {From: floor}} {
		o.Tags, o.Until = []sharedlog.Tag{"fresh"}, fresh+1
		if o.From == floor {
			o.From = last
		}
		r, err := l.NewReader(o)
		require.NoError(t, err)
		b, err := r.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, fresh, b.Entries[0].LSN)
		require.NoError(t, r.Close())
	}
	// A new client, and nodes that come back, know nothing of the old shards.
	late := c.open(t)
	defer late.Close()
	_, err = logtest.Read(ctx, late, 1, last, "t1")
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
	for i := range c.storage {
		c.end(fmt.Sprint("storage", i))
		c.node(i)
	}
	_, err = w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"fresh"}}).Wait(ctx)
	require.NoError(t, err)
	s := c.leader(t)
	known := map[string]bool{}
	for _, sh := range s.GetShards() {
		known[fmt.Sprintf("%08d", sh.GetId())] = true
	}
	for i := range c.storage {
		for id := range s.GetTables().GetOpened() {
			name := fmt.Sprintf("%08d", id+1)
			for _, what := range []string{"order-", "writers-"} {
				_, err = os.Stat(filepath.Join(c.dir, fmt.Sprint("storage", i), what+name))
				require.True(t, known[name] || os.IsNotExist(err), "%s%s of node %d: %v", what, name, i, err)
			}
		}
	}
}
