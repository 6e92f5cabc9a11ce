package server

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// A node that receives a snapshot in place of events learns of trims from it: the cursors on its
// full replicas get ErrTrimmed for what is deleted afterwards.
func TestTrimsOfASnapshotReachCursors(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	c.writer("w", id, 0).append(40, "x")
	c.seal(id)
	c.full(id, 0, 1)
	m := c.members[1]
	r := m.cursor(id, sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: 1, Until: c.tail(), Credit: 1})
	b, err := r.TryNext()
	require.NoError(t, err)
	require.EqualValues(t, 1, b.Entries[0].LSN)
	before := len(m.ids(id))
	c.disconnect(1)
	c.trim("x", 30)
	c.compact()
	c.reconnect(1)
	c.until(func() bool { return len(m.ids(id)) < before }, "nothing is deleted")
	lsns, err := drain(t, r)
	require.ErrorIs(t, err, sharedlog.ErrTrimmed, "it was shown %v", lsns)
	require.ErrorContains(t, err, "begins at 30")
}

// Segments are deleted by the trim points that all cursors know; what was trimmed elsewhere is left
// out of a segment that is repaired.
func TestDeletionFollowsTheCursors(t *testing.T) {
	n := start(t, vfs.NewMem(), self)
	trim := func(index, before uint64) *logpb.Event {
		return &logpb.Event{Index: index, Place: 50, What: &logpb.Event_Trim{Trim: &logpb.TrimPoint{Tag: "x", Before: before}}}
	}
	require.NoError(t, n.restart(&logpb.Snapshot{Index: 1, Tail: 50, Trims: []*logpb.TrimPoint{{Tag: "x", Before: 10}}}))
	require.EqualValues(t, 10, n.table.Deletable("x"))
	require.True(t, n.table.Announced(1))
	n.table.Apply(trim(2, 20))
	n.table.Apply(trim(3, 30))
	require.False(t, n.table.Announced(2))
	require.EqualValues(t, 30, n.table.TrimPoint("x"), "what a new cursor is told")
	require.EqualValues(t, 10, n.table.Deletable("x"))
	n.table.Init(&logpb.Snapshot{Index: 4, Tail: 50, Trims: []*logpb.TrimPoint{{Tag: "x", Before: 40}, {Tag: "y", Before: 5}}})
	require.EqualValues(t, 40, n.table.TrimPoint("x"))
	require.LessOrEqual(t, n.table.Deletable("x"), sharedlog.LSN(30))
	require.Zero(t, n.table.Deletable("y"))
	require.False(t, n.table.Announced(4))
	n.table.Announce()
	require.True(t, n.table.Announced(4))
	require.False(t, n.table.Announced(5))
	require.EqualValues(t, 40, n.table.Deletable("x"))
	require.EqualValues(t, 5, n.table.Deletable("y"))
	require.NoError(t, n.take(&logpb.FollowReply{Index: 5, Tail: 50, Events: []*logpb.Event{trim(5, 45)}}))
	require.EqualValues(t, 45, n.table.Deletable("x"))
	forgot := &logpb.Event{Index: 6, Place: 50, What: &logpb.Event_Forgot{Forgot: &logpb.Forgot{Floor: 48}}}
	n.table.Apply(forgot) // removes the trim points below the floor
	require.Zero(t, n.table.TrimPoint("x"), "below the floor the client knows")
	require.EqualValues(t, 48, n.table.Lowest("x"))
	require.Less(t, n.table.Deletable("y"), sharedlog.LSN(48))
	require.False(t, n.table.Announced(6))
	n.table.Announce()
	require.True(t, n.table.Announced(6))
	require.EqualValues(t, 48, n.table.Deletable("y"))
}

// Events that are received again, because a replica is further behind than the table, do not revert
// the table; and a table that is written in the middle of a batch is as of its index.
func TestReplayDoesNotTakeTheTableBack(t *testing.T) {
	n := start(t, vfs.NewMem(), self)
	shard := func(sealed bool) *logpb.Shard {
		return &logpb.Shard{Id: 1, Addrs: []string{"b"}, Incarnation: 1, Opened: 1, Sealed: sealed, SealedAt: 1}
	}
	change := func(index uint64, value string) *logpb.Event {
		return &logpb.Event{Index: index, Place: 1, What: &logpb.Event_Change{Change: &logpb.Pair{Key: "k", Value: []byte(value)}}}
	}
	require.NoError(t, n.restart(&logpb.Snapshot{Index: 20, Tail: 1, Shards: []*logpb.Shard{shard(true)}, Metadata: []*logpb.Pair{{Key: "k", Value: []byte("new")}}}))
	// The first of several batches: the replay has not reached the table's index.
	require.NoError(t, n.take(&logpb.FollowReply{Index: 12, Tail: 1, Events: []*logpb.Event{
		{Index: 10, Place: 1, What: &logpb.Event_Opened{Opened: shard(false)}}, change(11, "old"), change(12, "older"),
	}}))
	saved := func() *logpb.Snapshot {
		s, _ := n.table.Changed()
		n.table.Unsaved()
		return s
	}
	n.table.Unsaved()
	s := saved()
	require.EqualValues(t, 20, s.GetIndex())
	require.Equal(t, "new", string(s.GetMetadata()[0].GetValue()))
	require.True(t, s.GetShards()[0].GetSealed())
	require.Equal(t, "new", string(n.table.Metadata()["k"]), "what a replica begins under that is made now")
	require.EqualValues(t, 20, n.Metalog().GetIndex())
	require.Equal(t, "new", string(n.Metalog().GetMetadata()[0].GetValue()))
	n.table.Apply(change(21, "newer"))
	s = saved()
	require.EqualValues(t, 21, s.GetIndex(), "{older index, newer content} would lose the entries in between at a restart")
	require.Equal(t, "newer", string(s.GetMetadata()[0].GetValue()))
}

// A shard that was moved away from the node after it was opened is not created again when the
// events are received again.
func TestReplayMakesNoReplica(t *testing.T) {
	n := start(t, vfs.NewMem(), self)
	sealed := &logpb.Shard{Id: 1, Addrs: []string{"b"}, Incarnation: 1, Opened: 1, Length: 3, Sealed: true, SealedAt: 4}
	require.NoError(t, n.restart(&logpb.Snapshot{Index: 20, Tail: 4, Shards: []*logpb.Shard{sealed}}))
	opened := &logpb.Shard{Id: 1, Addrs: []string{"b", self}, Incarnation: 1, Opened: 1}
	require.NoError(t, n.take(&logpb.FollowReply{Index: 12, Tail: 1, Events: []*logpb.Event{{Index: 10, Place: 1, What: &logpb.Event_Opened{Opened: opened}}}}))
	require.Nil(t, n.replica(1))
}

// A replica's checkpoint on disk is never of a later entry than the table's last change of shards
// and metadata: a restored replica would show readers what lies above a shard that the node does
// not know (pitfall L2).
func TestTheTableIsWrittenFirst(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	w.append(3, "x")
	m := c.members[1]
	saved := func() uint64 {
		var r logpb.ReplicaCheckpoint
		_, err := m.node.readMessage(orderName(id), &r)
		require.NoError(t, err)
		return r.GetIndex()
	}
	var tried atomic.Int64
	m.fail(func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && strings.HasSuffix(op.Path, tableName+"-new") {
			tried.Add(1)
			return syscall.ENOSPC
		}
		return nil
	})
	c.open(0)
	opened := c.applied()
	w.append(3, "x")
	c.follows(1)
	before := tried.Load()
	c.until(func() bool { return tried.Load() > before+3 })
	require.Less(t, saved(), opened)
	m.fail(nil)
	c.until(func() bool { return saved() > opened })
	require.GreaterOrEqual(t, m.saved().GetIndex(), opened)
}
