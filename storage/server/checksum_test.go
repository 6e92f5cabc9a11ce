package server

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/tagindex"
)

// sums records what a session sends: for each record whether it came with a checksum, and whether
// the checksum is correct.
type sums struct {
	t    testing.TB
	has  map[sharedlog.LSN]bool
	fits map[sharedlog.LSN]bool
	tos  []sharedlog.LSN // frontiers of batches

	changed []byte // the data of the record that was changed in its first bit, if any
	damaged map[sharedlog.LSN]bool
}

func (s *sums) Send(m any) error {
	b := slices.Concat(m.(*transport.Raw).Parts...)
	for len(b) > 0 {
		var p wire.SessionPart
		rest, err := p.Take(b)
		if p.Damaged > 0 { // repair it, to see what follows
			i := bytes.Index(b, s.changed)
			require.True(s.t, i >= 0 && len(s.changed) > 0 && !s.damaged[p.Damaged], "record %d", p.Damaged)
			b[i] ^= 1
			s.damaged[p.Damaged] = true
			continue
		}
		require.NoError(s.t, err)
		require.NotEqual(s.t, wire.PartError, p.Kind)
		b = rest
		if p.Kind != wire.PartBatch && p.Kind != wire.PartSummed {
			continue
		}
		for _, e := range p.Entries {
			require.Less(s.t, e.LSN, p.Frontier)
			if len(s.tos) > 0 {
				require.GreaterOrEqual(s.t, e.LSN, s.tos[len(s.tos)-1], "below the frontier of the batch before")
			}
			s.has[e.LSN] = p.Kind == wire.PartSummed
			s.fits[e.LSN] = p.Kind == wire.PartSummed && !s.damaged[e.LSN]
		}
		s.tos = append(s.tos, p.Frontier)
	}
	return nil
}

// sums reads a shard to its end with a session of a client that wants checksums, or not.
func (m *member) sums(shard uint32, asks bool, changed []byte) *sums {
	n := m.node
	s := n.sessions.New()
	defer s.Close()
	got := &sums{t: m.c.t, has: map[sharedlog.LSN]bool{}, fits: map[sharedlog.LSN]bool{}, changed: changed, damaged: map[sharedlog.LSN]bool{}}
	s.Take(&logpb.SessionRequest{Checksums: asks, Open: []*logpb.OpenCursor{{Id: 1, Shard: shard, Tags: []string{"x"}, From: 1, Credit: 1 << 20}}})
	for again := true; again; {
		var say bool
		say, again = s.Round()
		if say {
			require.NoError(m.c.t, s.Flush(sumStream{streamOf{&said{t: m.c.t}}, got}))
		}
	}
	return got
}

// sumStream is the sending end of a stream.
type sumStream struct {
	streamOf
	*sums
}

func (s sumStream) Send(m any) error { return s.sums.Send(m) }

// sendPlain sends the writer's next group like a client of feature level 1.
func (w *writer) sendPlain(data []byte) {
	w.number++
	g := sharedlog.Group{Writer: w.name, Number: w.number, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: data}}}
	head := wire.AppendHead(nil, &g, w.opens, false)
	w.opens = false
	b := wire.Body{Head: len(head), Records: 1, Bytes: append(head, data...)}
	b.CRC = wire.CRC(b.Bytes)
	require.NoError(w.c.t, w.st.Send(&transport.Raw{Parts: [][]byte{submission(w.number, &b)}}))
}

// A checksum that a client has computed reaches readers unchanged, from the cache, from disk and
// from a copy: a node whose memory changes a record sends the checksum of what was appended.
// Records of old clients have none, and old readers get none.
func TestChecksumsReachReaders(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	const n = 30
	plain := func(lsn sharedlog.LSN) bool { return lsn%10 > 6 }
	for i := range n {
		data := fmt.Appendf(nil, "%d %0*d", i, 50*i, 0) // small ones and large ones
		if plain(sharedlog.LSN(i + 1)) {
			w.sendPlain(data)
		} else {
			w.send(data, "x")
		}
	}
	for i, o := range w.answers(n) {
		require.NoError(t, o.Err)
		require.EqualValues(t, i+1, o.First)
	}
	c.follows(0, 1)
	check := func(m *member, changed sharedlog.LSN, data []byte) {
		t.Helper()
		var got *sums
		c.until(func() bool { // a node has events before it has processed them
			got = m.sums(id, true, data)
			return len(got.has) == n
		}, "no reader has all records")
		for lsn, has := range got.has {
			require.Equal(t, !plain(lsn), has, "record %d", lsn)
			require.Equal(t, has && lsn != changed, got.fits[lsn], "record %d", lsn)
		}
		got = m.sums(id, false, nil)
		require.Len(t, got.has, n)
		require.NotContains(t, slices.Collect(maps.Values(got.has)), true, "this client has not asked")
	}
	check(c.members[0], 0, nil)
	check(c.members[1], 0, nil)

	// The primary's memory changes a record after all checks of the group.
	g, err := c.members[0].replica(id).hub.Group(tagindex.Place{First: 4})
	require.NoError(t, err)
	g.Records[0].Data[0] ^= 1
	check(c.members[0], 4, g.Records[0].Data)
	reply, err := c.members[0].last(id, "x", 5)
	require.NoError(t, err)
	sum, _ := wire.Compute(&sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: reply.GetData()}, nil)
	require.NotEqual(t, sum.At(4), reply.GetChecksum())
	reply, err = c.members[1].last(id, "x", 5)
	require.NoError(t, err)
	sum, _ = wire.Compute(&sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: reply.GetData()}, nil)
	require.Equal(t, sum.At(4), reply.GetChecksum())
	reply, err = c.members[1].last(id, "x", 8)
	require.NoError(t, err)
	require.EqualValues(t, 7, reply.GetLsn())
	require.Nil(t, reply.Checksum)

	c.seal(id)
	c.full(id, 0, 1)
	c.place(id, 0, 1, 2)
	c.full(id, 2)
	check(c.members[2], 0, nil) // by storage/fetch
	c.members[0].restart()
	c.full(id, 0)
	check(c.members[0], 0, nil) // from disk
}
