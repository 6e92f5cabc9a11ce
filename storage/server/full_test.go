package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/session"
)

func phaseOf(r *replica) storage.Phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase
}

// A shard is sealed while the disk of a node is full: the node keeps running, and completes its
// replica when there is room.
func TestSealedOnAFullDisk(t *testing.T) {
	var full atomic.Bool
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if full.Load() && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	})
	n := start(t, fsys, self)
	sh := &logpb.Shard{Id: 1, Addrs: []string{self}, Incarnation: n.incarnation, Opened: 1}
	require.NoError(t, n.restart(&logpb.Snapshot{Index: 7, Tail: 1, Shards: []*logpb.Shard{sh}}))
	r := n.replica(1)
	full.Store(true)
	sealed := &logpb.Shard{Id: 1, Addrs: sh.Addrs, Incarnation: n.incarnation, Opened: 1, Sealed: true, SealedAt: 1}
	require.NoError(t, n.take(&logpb.FollowReply{Index: 8, Tail: 1, Events: []*logpb.Event{{Index: 8, What: &logpb.Event_Sealed{Sealed: sealed}}}}))
	require.Eventually(t, func() bool { return r.hub.Tail() == session.Everything }, time.Minute, time.Millisecond, "readers are not kept waiting")
	require.NotEqual(t, storage.PhaseFull, phaseOf(r))
	full.Store(false)
	index := uint64(8)
	require.Eventually(t, func() bool { // the sequencer's heartbeat
		index++
		return n.take(&logpb.FollowReply{Index: index, Tail: 1}) == nil && phaseOf(r) == storage.PhaseFull
	}, time.Minute, time.Millisecond)
	var c logpb.ReplicaCheckpoint
	ok, err := n.readMessage(orderName(1), &c)
	require.NoError(t, err)
	require.True(t, ok && c.GetFull())
}

// The disk is full for a moment while a sealed shard is copied: the copy has no hole.
func TestCopiedOntoAFullDisk(t *testing.T) {
	const groups = 3
	peer := serve(t, map[string]transport.Handler{
		"storage/status": func(st transport.Stream) error {
			if err := st.Recv(new(logpb.StatusRequest)); err != nil {
				return err
			}
			return st.Send(&logpb.StorageStatus{Replicas: []*logpb.ReplicaStatus{{Shard: 1, Full: true}}})
		},
		"storage/fetch": func(st transport.Stream) error {
			req := new(logpb.FetchRequest)
			if err := st.Recv(req); err != nil {
				return err
			}
			for i := req.GetFrom(); i < groups; i++ { // one per message
				row := wire.Fetched{Kind: wire.FetchedGroup, From: i, First: sharedlog.LSN(1 + i)}
				row.Body.Encode(&sharedlog.Group{Writer: "w", Number: i + 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: fmt.Append(nil, i)}}}, i == 0)
				if err := st.Send(&transport.Raw{Parts: [][]byte{wire.AppendFetched(nil, &row)}}); err != nil {
					return err
				}
			}
			return nil
		},
	})
	for _, fails := range []int64{0, 1, groups - 1} { // number of groups that are written before the disk is full
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			fsys := vfs.Inject(vfs.NewMem(), vfs.FailAt(fails+1, func(op vfs.Op) bool {
				return op.Kind == vfs.OpWrite && strings.Contains(op.Path, "segments") && op.Off >= segment.HeaderSize
			}, syscall.ENOSPC))
			n := start(t, fsys, self)
			sh := &logpb.Shard{Id: 1, Addrs: []string{peer, self}, Incarnation: 1, Opened: 1, Length: groups, Sealed: true, SealedAt: 1 + groups}
			require.NoError(t, n.restart(&logpb.Snapshot{Index: 7, Tail: 1 + groups, Shards: []*logpb.Shard{sh}}))
			r := n.replica(1)
			require.Eventually(t, func() bool { return phaseOf(r) == storage.PhaseFull }, time.Minute, time.Millisecond)
			held := uint64(0)
			for _, s := range n.store.Segments() {
				table, err := r.disk.Index.Groups(s.ID)
				require.NoError(t, err)
				for i := range table {
					require.Equal(t, held, table[i].Position)
					held += uint64(table[i].Records)
				}
			}
			require.EqualValues(t, groups, held)
		})
	}
}

// A footer cannot be written because the disk is full: the node retries at intervals, not in a
// loop, and succeeds when there is room.
func TestClosedOnAFullDisk(t *testing.T) {
	c := newCluster(t, 1, nil)
	m := c.members[0]
	id := c.open(0)
	c.pause()
	w := c.writer("w", id, 0)
	for range 12 { // more than fit into a segment
		w.send(make([]byte, 1<<10), "x")
	}
	r := m.replica(id)
	c.until(func() bool { return r.onDisk() == 12 })
	var writes atomic.Int64
	m.fail(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && strings.Contains(op.Path, "segments") {
			writes.Add(1)
		}
		return noRoom(op)
	})
	c.resume()
	c.until(func() bool { return writes.Load() > 0 })
	before := writes.Load()
	require.Never(t, func() bool { return writes.Load()-before > 100 }, 3*retryEvery, time.Millisecond)
	closed := func() (n int) {
		for _, info := range r.disk.Segments() {
			if info.State == segment.StateClosed {
				n++
			}
		}
		return n
	}
	require.Zero(t, closed())
	m.fail(nil)
	c.until(func() bool { return closed() > 0 })
}

// A node that starts on a full disk removes its ballast before it writes anything, and only then.
func TestMakeRoom(t *testing.T) {
	fsys := vfs.NewMem()
	n := start(t, fsys, self)
	o := n.opt
	o.FS = fsys
	ballast := func() bool { return vfs.BallastIn(fsys, o.Dir, o.ballastBytes()).There() }
	require.Eventually(t, ballast, time.Minute, time.Millisecond)
	require.NoError(t, n.Close())
	used := func() int64 {
		fsys.SetCapacity(1 << 40)
		free, _, err := fsys.Free(o.Dir)
		require.NoError(t, err)
		return 1<<40 - free
	}()
	fsys.SetCapacity(used + startRoom)
	makeRoom(&o)
	require.True(t, ballast(), "there is room")
	fsys.SetCapacity(used + startRoom - 1)
	makeRoom(&o)
	require.False(t, ballast())
	makeRoom(&o) // there is no ballast
	free, _, err := fsys.Free(o.Dir)
	require.NoError(t, err)
	require.Greater(t, free, int64(startRoom))
}
