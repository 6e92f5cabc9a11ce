package server

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// Two shards on the same nodes: each applies its own part of a cut, and a group whose condition
// does not hold is refused and shown nowhere (promise 4).
func TestTwoShardsAndACondition(t *testing.T) {
	c := newCluster(t, 2, nil)
	one, two := c.open(0, 1), c.open(1, 0)
	c.change("owner", "a")
	a, b := c.writer("a", one, 0), c.writer("b", two, 1)
	first := a.append(3, "x")
	second := b.append(5, "x")
	send := func(w *writer, owner string) wire.Answer {
		w.number++
		var g wire.Body
		g.Encode(&sharedlog.Group{
			Writer: w.name, Number: w.number, If: sharedlog.Condition{Key: "owner", Value: []byte(owner)},
			Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: []byte(owner)}},
		}, false)
		require.NoError(t, w.st.Send(&transport.Raw{Parts: [][]byte{submission(w.number, &g)}}))
		return w.answers(1)[0]
	}
	holds := send(a, "a")
	require.NoError(t, holds.Err)
	require.ErrorIs(t, send(b, "b").Err, sharedlog.ErrConditionFailed)
	c.change("owner", "b")
	require.ErrorIs(t, send(a, "a").Err, sharedlog.ErrConditionFailed)
	first = append(first, holds.First)
	require.EqualValues(t, 5, c.seal(one))
	require.EqualValues(t, 6, c.seal(two))
	c.full(one, 0, 1)
	c.full(two, 0, 1)
	for i, m := range c.members {
		for id, want := range map[uint32][]sharedlog.LSN{one: first, two: second} {
			got, err := c.read(i, id, "x", 1)
			require.NoError(t, err)
			require.Equal(t, want, got, "node %d, shard %d", i, id)
		}
		require.Equal(t, []logpb.Outcome_Kind{logpb.Outcome_TAKEN, logpb.Outcome_VOID}, m.resolve(one, "a", 4, 5))
	}
}

// A cursor that is opened between two messages of the metalog misses nothing: only the last message
// has the tail.
func TestCursorBetweenTwoPartsOfTheMetalog(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	c.follows(0, 1)
	n := c.members[1].node
	c.disconnect(1)
	want := w.append(3, "x")
	r := c.members[1].replica(id)
	c.until(func() bool { return r.onDisk() == 3 })
	known, _, _ := n.table.At()
	part := new(logpb.FollowReply)
	c.mu.Lock()
	for _, e := range c.events {
		if e.GetIndex() > known {
			part.Events, part.Index = append(part.Events, e), e.GetIndex()
		}
	}
	c.mu.Unlock()
	require.NotEmpty(t, part.Events)
	require.NoError(t, n.take(part))
	r.ask(func(*loop) {}) // the message has been applied
	cursor, err := r.hub.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: 1}, n.table.TrimPoint)
	require.NoError(t, err)
	defer cursor.Close()
	require.NoError(t, n.take(&logpb.FollowReply{Index: part.Index, Tail: uint64(c.tail())}))
	r.ask(func(*loop) {})
	var got []sharedlog.LSN
	for frontier := sharedlog.LSN(0); frontier < c.tail(); {
		b, err := cursor.TryNext()
		require.NoError(t, err)
		frontier = b.Frontier
		for i := range b.Entries {
			got = append(got, b.Entries[i].LSN)
		}
	}
	require.Equal(t, want, got)
}

// Only a full replica returns the outcome of a number: another one may still receive what it lacks.
func TestResolveOnAnOpenShard(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	c.writer("w", id, 0).append(3, "x")
	for i, m := range c.members {
		err := m.dialer.Call(t.Context(), m.addr, "storage/resolve", &logpb.ResolveRequest{Shard: id, Writer: "w", Numbers: []uint64{4}}, new(logpb.ResolveReply))
		require.ErrorIs(t, err, sharedlog.ErrClosed, "node %d", i)
	}
}

// A segment is closed when all of its groups have outcomes: from then on the footer is the only
// record of them.
func TestClosedBehindTheOutcomes(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	want := w.append(3, "x")
	c.pause()
	for range 40 { // one kilobyte each: several segments
		w.send(make([]byte, 1000), "x")
	}
	r := c.members[0].replica(id)
	c.until(func() bool { return r.onDisk() == 43 })
	c.follows(0)
	r.ask(func(l *loop) { // after the close that the last batch has started
		for _, s := range r.disk.Segments() {
			require.NotEqual(t, segment.StateClosed, s.State, "nothing of %v is ordered", s.ID)
		}
		require.False(t, l.closing)
	})
	c.resume()
	for _, o := range w.answers(40) {
		want = append(want, o.First)
	}
	closed := func() (n int) {
		for _, s := range r.disk.Segments() {
			if s.State == segment.StateClosed {
				n++
			}
		}
		return n
	}
	c.until(func() bool { return closed() >= 4 })
	got, err := c.read(0, id, "x", 1)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A backup accepts each group once, however often it receives it, and none that would leave a gap.
func TestRepetitionsOnABackup(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	w.append(3, "x")
	r := c.members[1].replica(id)
	c.until(func() bool { return r.onDisk() == 3 })
	arrives := func(position uint64) arrival {
		a := arrival{position: position, decoded: new(wire.Decoded)}
		a.body.Encode(&sharedlog.Group{Writer: "w", Number: position + 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}}}}, position == 0)
		require.NoError(t, a.body.Decode(a.decoded))
		return a
	}
	for _, position := range []uint64{0, 1, 2, 5} {
		require.True(t, r.putGroups([]arrival{arrives(position)}))
	}
	require.True(t, r.putGroups([]arrival{arrives(1), arrives(2), arrives(2), arrives(7)}))
	r.ask(func(*loop) {})
	require.EqualValues(t, 3, r.onDisk())
	w.append(3, "x")
	require.EqualValues(t, 6, c.seal(id))
	c.full(id, 1)
	got, err := c.read(1, id, "x", 1)
	require.NoError(t, err)
	require.Len(t, got, 6)
}

// A node that is killed after a deletion knows why the groups are missing: it has written its
// checkpoint before (pitfall G8).
func TestKilledBehindADeletion(t *testing.T) {
	c := newCluster(t, 2, func(o *Options) { o.CheckpointInterval = time.Hour })
	id := c.open(0, 1)
	want := c.writer("w", id, 0).append(40, "x")
	m := c.members[1]
	c.until(func() bool { return m.replica(id).onDisk() == 40 })
	c.follows(1)
	before := len(m.ids(id))
	c.trim("x", want[29])
	c.until(func() bool { return len(m.ids(id)) < before-2 })
	crashed := m.fs.KillClone()
	m.lose(crashed)
	m.start()
	require.Equal(t, int(storage.PhaseOpen), m.phase(id), "it has lost nothing")
	require.EqualValues(t, 40, c.seal(id))
	c.full(id, 1)
	got, err := c.read(1, id, "x", want[29])
	require.NoError(t, err)
	require.Equal(t, slices.Clone(want[29:]), got)
}
