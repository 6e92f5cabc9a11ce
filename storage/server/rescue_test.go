package server

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// session reads a tag of a shard from a node like a client, up to an error or to the end of the
// shard.
func (m *member) session(shard uint32, tag string, from sharedlog.LSN) (lsns []sharedlog.LSN, _ error) {
	t := m.c.t
	d, err := transport.NewDialer(transport.Options{})
	require.NoError(t, err)
	defer d.Close()
	st, err := d.Open(t.Context(), m.addr, "storage/session")
	require.NoError(t, err)
	require.NoError(t, st.Send(&logpb.SessionRequest{Open: []*logpb.OpenCursor{{Id: 1, Shard: shard, Tags: []string{tag}, From: uint64(from), Credit: 1 << 20}}}))
	for began := time.Now(); ; require.Less(t, time.Since(began), patience, "it hangs behind %v", lsns) {
		var msg transport.Raw
		require.NoError(t, st.Recv(&msg))
		for b := msg.Bytes; len(b) > 0; {
			var p wire.SessionPart
			b, err = p.Take(b)
			require.NoError(t, err)
			switch p.Kind {
			case wire.PartBatch:
				for _, e := range p.Entries {
					lsns = append(lsns, e.LSN)
				}
			case wire.PartFrontier:
				if len(p.Except) == 0 && p.Frontier == session.Everything {
					return lsns, nil
				}
			case wire.PartError:
				return lsns, p.Err
			}
		}
	}
}

// wipe replaces a node's disk by an empty one and starts the node.
func (m *member) wipe() {
	m.end()
	m.fs = vfs.NewMem()
	m.start()
}

// status returns the status of a node's replica.
func (m *member) status(shard uint32) *logpb.ReplicaStatus {
	for _, r := range m.node.Status().GetReplicas() {
		if r.GetShard() == shard {
			return r
		}
	}
	return new(logpb.ReplicaStatus)
}

// remains waits until a node reports a given rest of a sealed shard.
func (c *cluster) remains(i int, shard uint32, want uint64) {
	c.t.Helper()
	c.until(func() bool {
		s := c.members[i].status(shard)
		return s.GetSealed() && s.GetRemains() == want
	}, "node %d: %v", i, c.members[i].status(shard))
}

// shows checks what nodes show of a shard whose records from want[kept:] on were given up.
func (c *cluster) shows(shard uint32, want []sharedlog.LSN, kept int, nodes ...int) {
	c.t.Helper()
	from := want[0]
	if kept > 0 {
		from = want[kept-1] + 1
	}
	for _, i := range nodes {
		m := c.members[i]
		got, err := m.session(shard, "x", 1)
		require.ErrorIs(c.t, err, sharedlog.ErrLost, "node %d", i)
		require.ErrorContains(c.t, err, fmt.Sprintf("%d records of shard %d, between LSN %d and %d,", len(want)-kept, shard, from, want[len(want)-1]+1))
		require.Equal(c.t, want[:kept], append([]sharedlog.LSN{}, got...), "node %d", i)
		_, err = m.session(shard, "x", want[len(want)-1])
		require.ErrorIs(c.t, err, sharedlog.ErrLost, "node %d, in the range", i)
		got, err = m.session(shard, "x", want[len(want)-1]+1)
		require.NoError(c.t, err, "behind the range")
		require.Empty(c.t, got)
		numbers := make([]uint64, len(want)+1)
		outcomes := make([]logpb.Outcome_Kind, len(numbers))
		for n := range numbers {
			numbers[n], outcomes[n] = uint64(n+1), logpb.Outcome_FORGOTTEN
			if n < kept {
				outcomes[n] = logpb.Outcome_TAKEN
			}
		}
		require.Equal(c.t, outcomes, m.resolve(shard, "w", numbers...), "node %d", i)
		require.Equal(c.t, []logpb.Outcome_Kind{logpb.Outcome_FORGOTTEN}, m.resolve(shard, "another", 1), "node %d", i)
	}
}

// fetchTo fetches the groups of a shard up to a length, and returns the position that was reached.
func (m *member) fetchTo(shard uint32, length uint64) (to uint64) {
	t := m.c.t
	d, err := transport.NewDialer(transport.Options{})
	require.NoError(t, err)
	defer d.Close()
	st, err := d.Open(t.Context(), m.addr, "storage/fetch")
	require.NoError(t, err)
	require.NoError(t, st.Hello(&logpb.FetchRequest{Shard: shard, To: length, Marks: true}))
	require.NoError(t, st.CloseSend())
	for {
		var msg transport.Raw
		if err := st.Recv(&msg); err != nil {
			require.True(t, errors.Is(err, io.EOF), "%v", err)
			return to
		}
		for b := msg.Bytes; len(b) > 0; {
			var row wire.Fetched
			b, err = row.Take(b)
			require.NoError(t, err)
			to = max(to, row.To)
		}
	}
}

// The only remaining replica lacks the end of the shard: it is full after the end was given up, and
// the others are copied from it. A replica that comes back with the whole shard shows no more than
// the others.
func TestRescueOfAnEnd(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1, 2)
	w := c.writer("w", id, 0)
	want := w.append(20, "x")
	c.until(func() bool { return c.members[2].replica(id).onDisk() == 20 })
	c.members[2].end()
	want = append(want, w.append(10, "x")...)
	c.seal(id)
	c.full(id, 0, 1)
	c.members[0].end()
	c.members[1].wipe()
	c.members[2].start()
	c.remains(2, id, 20)
	c.remains(1, id, 0)
	got, err := drain(t, c.members[2].cursor(id, sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: 1, Until: want[19] + 1}))
	require.NoError(t, err)
	require.Equal(t, want[:20], got)
	require.Equal(t, want[20], c.members[2].replica(id).hub.Tail(), "a reader waits there")
	c.rescue(id, 20)
	c.full(id, 1, 2)
	c.shows(id, want, 20, 1, 2)
	require.EqualValues(t, 20, c.members[2].fetchTo(id, 30), "a node that has not received it yet")
	c.members[0].start()
	c.until(func() bool { return c.members[0].replica(id).shown.LostFrom() > 0 })
	c.shows(id, want, 20, 0, 1, 2)
	for _, m := range c.members {
		m.restart()
	}
	c.follows(0, 1, 2)
	c.shows(id, want, 20, 0, 1, 2)
	c.members[1].wipe() // it may be copied from the one that has more
	c.members[2].end()
	c.full(id, 1)
	c.shows(id, want, 20, 0, 1)
}

// last asks a node for the newest record of a tag.
func (m *member) last(shard uint32, tag string, below sharedlog.LSN) (*logpb.LastReply, error) {
	d, err := transport.NewDialer(transport.Options{})
	require.NoError(m.c.t, err)
	defer d.Close()
	reply := new(logpb.LastReply)
	return reply, d.Call(m.c.t.Context(), m.addr, "storage/last", &logpb.LastRequest{Shard: shard, Tag: tag, Below: uint64(below)}, reply)
}

// A node is killed after its table has recorded a rescue and before its replica's checkpoint has.
func TestKilledDuringARescue(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1, 2)
	w := c.writer("w", id, 0)
	want := w.append(20, "x")
	c.until(func() bool { return c.members[2].replica(id).onDisk() == 20 })
	c.members[2].end()
	want = append(want, w.append(10, "x")...)
	c.seal(id)
	c.members[0].end()
	c.members[1].end()
	m := c.members[2]
	m.start()
	c.remains(2, id, 20)
	c.until(func() bool {
		var at logpb.ReplicaCheckpoint
		ok, err := m.node.readMessage(orderName(id), &at)
		require.NoError(t, err)
		return ok && at.GetShard().GetSealed()
	})
	m.fail(func(op vfs.Op) error {
		if strings.Contains(op.Path, orderName(id)) {
			return noRoom(op)
		}
		return nil
	})
	c.rescue(id, 20)
	c.until(func() bool { return len(m.saved().GetShards()) > 0 && m.saved().GetShards()[0].GetLost() == 10 })
	left := m.fs.KillClone()
	m.fail(nil)
	m.end()
	m.fs = left
	m.start()
	c.full(id, 2)
	c.shows(id, want, 20, 2)
}

// A reader that waits at the end of the available records gets the error after a rescue, and so
// does a query for the newest record of a tag.
func TestReadersLearnOfARescue(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1, 2)
	w := c.writer("w", id, 0)
	want := w.append(10, "x", "y")
	c.until(func() bool { return c.members[2].replica(id).onDisk() == 10 })
	c.members[2].end()
	want = append(want, w.append(10, "x")...)
	c.seal(id)
	c.members[0].end()
	c.members[1].end()
	m := c.members[2]
	m.start()
	c.remains(2, id, 10)
	type result struct {
		lsns []sharedlog.LSN
		err  error
	}
	read, newest := make(chan result, 1), make(chan error, 1)
	go func() {
		lsns, err := m.session(id, "x", 1)
		read <- result{lsns, err}
	}()
	go func() {
		_, err := m.last(id, "y", c.tail())
		newest <- err
	}()
	c.until(func() bool { return m.node.sessions.Open() == 1 })
	require.Never(t, func() bool { return len(read)+len(newest) > 0 }, 100*time.Millisecond, 5*time.Millisecond)
	c.rescue(id, 10)
	r := <-read
	require.ErrorIs(t, r.err, sharedlog.ErrClosed, "it is to be opened again")
	require.Equal(t, want[:10], r.lsns)
	require.ErrorIs(t, <-newest, sharedlog.ErrLost)
	c.shows(id, want, 10, 2)
	reply, err := m.last(id, "y", want[10])
	require.NoError(t, err, "below the range")
	require.EqualValues(t, want[9], reply.GetLsn())
	c.trim("y", c.tail())
	c.follows(2)
	_, err = m.last(id, "y", c.tail())
	require.NoError(t, err, "whatever was lost of this tag was trimmed")
	_, err = m.last(id, "x", c.tail())
	require.ErrorIs(t, err, sharedlog.ErrLost)
}

// A replica that lacks the end becomes full by a rescue, and syncs its data before. In the meantime
// no reader learns that the order continues after the lost records without learning of the loss.
func TestARescueIsKnownBeforeTheOrderContinues(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { o.FsyncInterval = time.Hour })
	id := c.open(0, 1, 2)
	w := c.writer("w", id, 0)
	w.append(10, "x")
	m := c.members[2]
	c.until(func() bool { return m.replica(id).onDisk() == 10 })
	m.fail(noRoom)
	w.append(10, "x")
	c.seal(id)
	c.members[0].end()
	c.members[1].end()
	r := m.replica(id)
	c.until(func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.phase == storage.PhaseSealed && len(r.inbox) == 0
	})
	syncs, synced := make(chan struct{}, 100), make(chan struct{})
	release := sync.OnceFunc(func() { close(synced) })
	defer release()
	m.fail(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			syncs <- struct{}{}
			<-synced
		}
		return nil
	})
	length, _ := r.left()
	c.rescue(id, length)
	<-syncs
	require.True(t, r.hub.Tail() < c.tail() || r.shown.LostFrom() > 0, "readers pass records that were given up, and are told nothing")
	release()
	c.full(id, 2)
	require.NotZero(t, r.shown.LostFrom())
}

// The power of all nodes fails when nothing was synced for a while: no replica has everything that
// is ordered. The longest one is rescued, whether it knows that it is stale or not.
func TestRescueAfterAPowerCut(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newCluster(t, 3, func(o *Options) { o.FsyncInterval = time.Hour })
			id := c.open(0, 1, 2)
			w := c.writer("w", id, 0)
			want := w.append(20, "x")
			for i, m := range c.members {
				c.until(func() bool { return m.replica(id).onDisk() == 20 })
				if i != int(seed)%3 { // one of them has never synced
					require.NoError(t, m.replica(id).syncing().Sync())
				}
			}
			want = append(want, w.append(10, "x")...)
			for _, m := range c.members { // a checkpoint covers all of it
				c.until(func() bool {
					var at logpb.ReplicaCheckpoint
					ok, err := m.node.readMessage(orderName(id), &at)
					require.NoError(t, err)
					if !ok {
						return false
					}
					o, err := storage.RestoreCheckpoint(at.GetOrder())
					return err == nil && o.Assigned() == 30
				})
			}
			rng := rand.New(rand.NewPCG(seed, 1))
			for _, m := range c.members {
				m.cutPower(rng)
			}
			c.seal(id)
			for _, m := range c.members {
				m.start()
			}
			c.follows(0, 1, 2)
			longest := uint64(0)
			for _, m := range c.members {
				c.until(func() bool { return m.status(id).GetSealed() })
				longest = max(longest, m.status(id).GetRemains())
			}
			if longest == 30 { // one of them has lost nothing
				c.full(id, 0, 1, 2)
				return
			}
			require.GreaterOrEqual(t, longest, uint64(20))
			c.rescue(id, longest)
			c.full(id, 0, 1, 2)
			c.shows(id, want, int(longest), 0, 1, 2)
			for _, m := range c.members {
				m.restart()
			}
			c.shows(id, want, int(longest), 0, 1, 2)
		})
	}
}

// The only remaining replica has missed a part of the metalog: the groups that had outcomes by then
// can be rescued, to the last record, and no more.
func TestRescueOfAStaleReplica(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	want := w.append(20, "x")
	c.follows(1)
	m := c.members[1]
	c.until(func() bool { return m.replica(id).hub.Tail() > want[19] })
	require.NotEqual(t, segment.StateClosed, m.replica(id).disk.Segments()[len(m.ids(id))-1].State, "the list does not know where it ends")
	c.disconnect(1)
	want = append(want, w.append(10, "x")...)
	c.follows(0)
	c.compact()
	c.reconnect(1)
	c.healthy(1, id, staleIs)
	c.seal(id)
	c.members[0].end()
	c.until(func() bool { return m.status(id).GetSealed() })
	require.EqualValues(t, 20, m.status(id).GetRemains())
	require.EqualValues(t, want[19]+1, m.status(id).GetRemainsEnd())
	c.rescue(id, 20)
	c.full(id, 1)
	c.shows(id, want, 20, 1)
}

// All replicas have lost their disks: nothing is left to rescue, and readers get the error.
func TestRescueOfNothing(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	want := c.writer("w", id, 0).append(10, "x")
	c.seal(id)
	for _, m := range c.members {
		m.wipe()
	}
	c.remains(0, id, 0)
	c.remains(1, id, 0)
	c.rescue(id, 0)
	c.full(id, 0, 1)
	c.shows(id, want, 0, 0, 1)
	for i, m := range c.members { // otherwise the leader would forget the shard with its lost records
		m.node.look()
		require.False(t, m.node.leader.Empty(id), "node %d", i)
	}
	c.members[0].restart()
	c.shows(id, want, 0, 0, 1)
	c.trim("x", c.tail())
	c.follows(0, 1)
	_, err := c.members[0].session(id, "x", 1)
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
}

// Trimmed segments are deleted only when what was appended before the trim is durable, as far as
// the node can tell also on other nodes: a power failure must not undo the commit that allowed the
// trim.
func TestDeletionWaitsForSyncs(t *testing.T) {
	const every = 150 * time.Millisecond
	c := newCluster(t, 1, func(o *Options) { o.FsyncInterval = every })
	id := c.open(0)
	m := c.members[0]
	w := c.writer("w", id, 0)
	w.append(30, "x")
	c.until(func() bool { return m.replica(id).disk.Segments()[0].State == segment.StateClosed })
	first := m.ids(id)[0]
	w.append(1, "commit")
	var synced atomic.Int64
	m.fail(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.Contains(op.Path, "segments") {
			synced.Add(1)
		}
		return nil
	})
	began := time.Now()
	c.trim("x", c.tail())
	c.until(func() bool { return !slices.Contains(m.ids(id), first) })
	require.GreaterOrEqual(t, time.Since(began), 2*every)
	require.NotZero(t, synced.Load())
}
