package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// followUntil follows a sequencer until the stream ends, an event is received, or the duration has
// passed. It returns the stream's error.
func (c *cluster) followUntil(id uint64, req *logpb.FollowRequest, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	st, err := c.dialer.Open(ctx, name(id), "sequencer/follow")
	require.NoError(c.t, err)
	require.NoError(c.t, st.Hello(req))
	for {
		m := new(logpb.FollowReply)
		if err := st.Recv(m); err != nil || len(m.GetEvents()) > 0 {
			return err
		}
	}
}

// A follower that has received more than exists learns with the next event that entries are gone; a
// follower from another cluster is refused at once; and a sequencer without a leader closes its
// followers' streams.
func TestFollowersAreToldTheTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.write()
		c.kept(1, 2, 3)
		id := c.leader()
		var at, tail uint64
		var stores []uint64
		ask := func() {
			require.NoError(t, c.all[id].server.ask(func() {
				st := c.all[id].server.replica.State()
				at, tail, stores = st.Applied(), uint64(st.Tail()), nil
				for _, q := range st.Sequencers() {
					stores = append(stores, q.StoreID)
				}
			}))
		}
		for _, ahead := range []uint64{0, 1} {
			ask()
			result := make(chan error, 1)
			go func() {
				result <- c.followUntil(id, &logpb.FollowRequest{Level: 2, After: at, Tail: tail + ahead, Node: "n1", Stores: stores}, 10*time.Second)
			}()
			<-time.After(100 * time.Millisecond)
			c.write()
			err := <-result
			if ahead == 0 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, sharedlog.ErrCorrupt)
			require.ErrorContains(t, err, "lost entries that were published")
		}
		ask()
		err := c.followUntil(id, &logpb.FollowRequest{Level: 2, After: at, Node: "n1", Stores: []uint64{stores[0] + 1}}, 10*time.Second)
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		require.ErrorContains(t, err, "of another cluster")

		for other := range c.all {
			if other != id {
				c.kill(other)
			}
		}
		err = c.followUntil(id, &logpb.FollowRequest{Level: 2, After: at, Node: "n1", Stores: stores}, 10*time.Second)
		require.ErrorContains(t, err, "has no leader")
	})
}

// A client that is further behind than one message covers, where nothing in the message is for
// clients, gets the rest at once. Otherwise it would never learn of a seal: its appends would wait
// forever, and its readers would lack shards.
func TestAClientIsToldWhatLiesBehindCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.kill(1)
		c.all[1].opt.FollowEvents = 2
		require.NoError(t, c.start(1))
		c.join(2, 1)
		c.write()
		var at uint64
		require.NoError(t, c.all[1].server.ask(func() { at = c.all[1].server.replica.State().Applied() }))
		for range 7 {
			c.write() // not for clients either
		}
		require.NoError(t, c.add(2))

		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		st, err := c.dialer.Open(ctx, name(1), "sequencer/follow")
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, st.Hello(&logpb.FollowRequest{Level: 2, After: at}))
		for {
			m := new(logpb.FollowReply)
			require.NoError(t, st.Recv(m))
			if len(m.GetEvents()) > 0 {
				e := m.GetEvents()[0]
				require.EqualValues(t, 2, e.GetSequencer().GetId())
				require.Greater(t, e.GetIndex(), at, "it was told an index below which it lacks an event")
				require.Less(t, time.Since(began), heartbeat, "not at once")
				return
			}
			at = m.GetIndex()
		}
	})
}

// Whatever the history has dropped: a view is gone, or it starts with the next event.
func TestHistoryHasNoHole(t *testing.T) {
	h := newHistory(5, 1<<20, 0, 1)
	for i := uint64(1); i <= 60; i++ {
		ef := sequencer.Effect{Index: i, Kind: sequencer.KindTrim, OK: true, Tag: "t", Before: 1}
		h.add([]*logpb.Event{event(&ef)}, []int32{sizeOf(&ef)}, i, 1)
		there := 0
		for after := range i {
			v := h.behind(after)
			if v.gone {
				require.Zero(t, there, "of %d events those behind %d are gone, and earlier ones are there", i, after)
				continue
			}
			there++
			require.EqualValues(t, after+1, v.events[0].GetIndex())
		}
		require.GreaterOrEqual(t, there, min(int(i), 5))
	}
}
