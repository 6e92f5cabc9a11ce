package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// atLevelOne turns the sequencers' data into that of a program of level 1.
func (c *cluster) atLevelOne() {
	for id := range c.all {
		c.kill(id)
		c.wipe(id)
		r, err := replica.Open(replica.Options{ID: id, Voters: []uint64{1, 2, 3}, Level: 1, FS: c.all[id].disk, Dir: "d", Logger: quiet})
		require.NoError(c.t, err)
		require.NoError(c.t, r.Close())
		c.all[id].opt.Bootstrap = false
	}
	for id := range c.all {
		require.NoError(c.t, c.start(id))
	}
}

// stream opens a stream and sends the first message; the returned function ends it.
func (c *cluster) stream(id uint64, method string, hello any) (transport.Stream, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	st, err := c.dialer.Open(ctx, name(id), method)
	require.NoError(c.t, err)
	require.NoError(c.t, st.Hello(hello))
	return st, cancel
}

// A command raises the cluster's level, and only if every process supports it: it names those that
// do not. Afterwards older programs are refused.
func TestTheLevelIsRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.atLevelOne()
		c.write()
		raise := func(req *logpb.LevelRequest) *logpb.LevelReply {
			var reply *logpb.LevelReply
			c.eventually("the leader does not answer", func() bool {
				reply = new(logpb.LevelReply)
				return c.call(c.leader(), "sequencer/level", req, reply) == nil && reply.GetLeader() == nil && !reply.GetUnknown()
			})
			return reply
		}
		c.eventually("the leader does not know the others' programs", func() bool { return len(raise(&logpb.LevelRequest{Check: true}).GetTooOld()) == 0 })
		require.EqualValues(t, 1, raise(&logpb.LevelRequest{Check: true}).GetLevel(), "it was only asked")
		require.ErrorIs(t, c.call(c.leader(), "sequencer/level", &logpb.LevelRequest{Level: 9}, new(logpb.LevelReply)), sharedlog.ErrInvalid)

		lead := c.leader()
		_, end := c.stream(lead, "sequencer/node", &logpb.NodeReport{Addr: "old-node", Incarnation: 1})
		other := lead%3 + 1
		old, endOld := c.stream(other, "sequencer/follow", &logpb.FollowRequest{Snapshot: true})
		require.NoError(t, old.Recv(new(logpb.FollowReply)))
		young, endYoung := c.stream(other, "sequencer/follow", &logpb.FollowRequest{Snapshot: true, Level: sequencer.Level})
		require.NoError(t, young.Recv(new(logpb.FollowReply)))
		defer endYoung()
		var reply *logpb.LevelReply
		c.eventually("the old ones are not named", func() bool {
			reply = raise(&logpb.LevelRequest{})
			return len(reply.GetTooOld()) == 2
		})
		require.Equal(t, "storage node old-node", reply.GetTooOld()[0])
		require.Contains(t, reply.GetTooOld()[1], "1 clients of the log")
		require.EqualValues(t, 1, reply.GetLevel())
		endOld()
		end() // it remains a member, disconnected
		c.eventually("it is not missed", func() bool {
			reply = raise(&logpb.LevelRequest{})
			return len(reply.GetTooOld()) == 1 && reply.GetTooOld()[0] == "storage node old-node (it is silent)"
		})
		c.kill(other)
		<-time.After(2 * time.Second)
		reply = raise(&logpb.LevelRequest{})
		require.Len(t, reply.GetTooOld(), 2)
		require.Contains(t, reply.GetTooOld()[0], "it is silent")
		require.NoError(t, c.start(other))
		c.eventually("it is not raised", func() bool {
			reply = raise(&logpb.LevelRequest{Silent: true})
			return reply.GetLevel() == sequencer.Level
		})
		require.Empty(t, reply.GetTooOld())
		c.eventually("the sequencers' addresses do not follow", func() bool {
			m := c.status(c.leader())
			for _, q := range m.GetMembers() {
				if q.GetMember().GetStoreId() == 0 {
					return false
				}
			}
			return m.GetLevel() == sequencer.Level && len(m.GetMembers()) == 3
		})
		c.write()
		c.kept(1, 2, 3)
		// Processes that are too old now get an error.
		old, endOld = c.stream(c.leader(), "sequencer/follow", &logpb.FollowRequest{Snapshot: true})
		defer endOld()
		require.ErrorIs(t, old.Recv(new(logpb.FollowReply)), sharedlog.ErrVersion)
		node, end := c.stream(c.leader(), "sequencer/node", &logpb.NodeReport{Addr: "old-node", Incarnation: 1})
		defer end()
		var err error
		for err == nil {
			err = node.Recv(new(logpb.Leader))
		}
		require.ErrorIs(t, err, sharedlog.ErrVersion)
		require.ErrorContains(t, err, "the storage node old-node runs a program of level 1")
	})
}

// An old client that follows when the level is raised is disconnected.
func TestAnOldFollowerIsSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.atLevelOne()
		c.write()
		lead := c.leader()
		old, end := c.stream(lead, "sequencer/follow", &logpb.FollowRequest{Snapshot: true})
		defer end()
		require.NoError(t, old.Recv(new(logpb.FollowReply)))
		require.NoError(t, c.all[lead].server.ask(func() {
			require.NoError(t, c.all[lead].server.replica.Propose(sequencer.Entry{Kind: sequencer.KindLevel, Level: 2}, func(sequencer.Effect, error) {}))
		}))
		var err error
		for err == nil {
			err = old.Recv(new(logpb.FollowReply))
		}
		require.ErrorIs(t, err, sharedlog.ErrVersion)
	})
}

// All parts of this program support the same level.
func TestOneLevel(t *testing.T) {
	require.EqualValues(t, sequencer.Level, follow.Level)
}
