package server

import (
	"fmt"
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
	"tailrace.dev/tailrace/sharedlog/body"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// session reads a tag of a shard from a node as clients do, up to an error, or to where
// the shard ends.
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
		p := body.Parser{B: msg.Bytes}
		for len(p.B) > 0 {
			switch p.Byte() {
			case sayBatch:
				p.Uvarint()
				p.Uvarint()
				p.Uvarint()
				for n := p.Uvarint(); n > 0; n-- {
					lsns = append(lsns, sharedlog.LSN(p.Uvarint()))
					for tags := p.Uvarint(); tags > 0; tags-- {
						p.Bytes()
					}
					p.Bytes()
				}
			case sayFrontier:
				p.Uvarint()
				frontier := sharedlog.LSN(p.Uvarint())
				p.Uvarint()
				p.Uvarint()
				behind := p.Uvarint()
				for range behind {
					p.Uvarint()
				}
				if behind == 0 && frontier == everything {
					return lsns, nil
				}
			case sayError:
				p.Uvarint()
				return lsns, sharedlog.Errorf(sharedlog.Kind(p.Byte()), "%s", p.Bytes())
			}
			require.False(t, p.Bad)
		}
	}
}

// wipe takes a node's disk away and starts it on an empty one.
func (m *member) wipe() {
	m.end()
	m.fs = vfs.NewMem()
	m.start()
}

// status returns what a node says of its replica.
func (m *member) status(shard uint32) *logpb.ReplicaStatus {
	for _, r := range m.node.Status().GetReplicas() {
		if r.GetShard() == shard {
			return r
		}
	}
	return new(logpb.ReplicaStatus)
}

// remains waits until a node says that so much of a sealed shard is left on it.
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

// fetchTo asks for the groups of a shard up to a length, and returns up to where they come.
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
			require.True(t, isEOF(err), "%v", err)
			return to
		}
		for b := msg.Bytes; len(b) > 0; {
			var row body.Fetched
			b, err = row.Take(b)
			require.NoError(t, err)
			to = max(to, row.To)
		}
	}
}

// The only replica that is left lacks the end of the shard: it is full when that was given
// up, and the others are copied from it. One that comes back with all of it shows no more.
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
	require.EqualValues(t, 20, c.members[2].fetchTo(id, 30), "whoever has not heard of it yet")
	c.members[0].start()
	c.until(func() bool { return c.members[0].replica(id).lostFrom() > 0 })
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

// A node is killed when its table of shards knows of a rescue, and its replica's checkpoint
// does not.
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

// A reader that waits at the end of what is there hears of a rescue, and so does one that
// asks for the newest record of a tag.
func TestReadersHearOfARescue(t *testing.T) {
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
	c.until(func() bool { return m.node.sessions.Load() == 1 })
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

// A replica that lacks the end becomes whole by a rescue, and syncs what it has before. Nobody
// is told meanwhile that the order goes on behind that without being told what was given up.
func TestARescueIsKnownBeforeTheOrderGoesOn(t *testing.T) {
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
	require.True(t, r.hub.Tail() < c.tail() || r.lostFrom() > 0, "readers pass records that were given up, and are told nothing")
	release()
	c.full(id, 2)
	require.NotZero(t, r.lostFrom())
}

// The power of all nodes fails before anything was synced for a while: no replica has what
// the order says. What the longest one has is rescued, whether it knows itself to be
// stale or not.
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
			for _, m := range c.members { // a checkpoint knows of all of it
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
			if longest == 30 { // the power cut took nothing from one of them
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

// isEmpty reports whether the leader is told that nothing is left in a shard.
func (l *leaderLink) isEmpty(shard uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.empty[shard]
}

// The only replica that is left has lost the metalog's thread: what it held with fates by
// then can be rescued, to the last record, and no more.
func TestRescueOfAStaleReplica(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	want := w.append(20, "x")
	c.follows(1)
	m := c.members[1]
	c.until(func() bool { return m.replica(id).hub.Tail() > want[19] })
	require.NotEqual(t, segment.StateClosed, m.replica(id).segments()[len(m.ids(id))-1].State, "the list does not know where it ends")
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

// All replicas have lost their disks: nothing is left to rescue, and readers are told so.
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
	for i, m := range c.members { // or the leader would forget the shard, and what was lost with it
		m.node.look()
		require.False(t, m.node.leader.isEmpty(id), "node %d", i)
	}
	c.members[0].restart()
	c.shows(id, want, 0, 0, 1)
	c.trim("x", c.tail())
	c.follows(0, 1)
	_, err := c.members[0].session(id, "x", 1)
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
}

// What was trimmed is deleted when what was appended before is durable, on all nodes as
// far as one can tell: a power cut must not take back the commit that allowed the trim.
func TestDeletionWaitsForSyncs(t *testing.T) {
	const every = 150 * time.Millisecond
	c := newCluster(t, 1, func(o *Options) { o.FsyncInterval = every })
	id := c.open(0)
	m := c.members[0]
	w := c.writer("w", id, 0)
	w.append(30, "x")
	c.until(func() bool { return m.replica(id).segments()[0].State == segment.StateClosed })
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
