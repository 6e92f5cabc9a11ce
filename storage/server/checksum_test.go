package server

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/body"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage/tagindex"
)

// sums records what a session sends: for each record whether it came with a checksum, and whether
// the checksum is correct.
type sums struct {
	t    *testing.T
	has  map[sharedlog.LSN]bool
	fits map[sharedlog.LSN]bool
	tos  []sharedlog.LSN // frontiers of batches
}

func (s *sums) Send(m any) error {
	p := body.Parser{B: slices.Concat(m.(*transport.Raw).Parts...)}
	for len(p.B) > 0 {
		switch kind := p.Byte(); kind {
		case kindBeat:
		case kindBatch, kindSummed:
			p.Uvarint()
			to := sharedlog.LSN(p.Uvarint())
			p.Uvarint()
			for n := p.Uvarint(); n > 0; n-- {
				lsn, row := sharedlog.LSN(p.Uvarint()), p.B
				require.Less(s.t, lsn, to)
				if len(s.tos) > 0 {
					require.GreaterOrEqual(s.t, lsn, s.tos[len(s.tos)-1], "below the frontier of the batch before")
				}
				for tags := p.Uvarint(); tags > 0; tags-- {
					p.Bytes()
				}
				p.Bytes()
				row = row[:len(row)-len(p.B)]
				s.has[lsn] = kind == kindSummed
				s.fits[lsn] = kind == kindSummed && body.Row(row).Sum().At(lsn) == p.Uint32()
			}
			s.tos = append(s.tos, to)
		case kindFrontier:
			for range 4 {
				p.Uvarint()
			}
			for n := p.Uvarint(); n > 0; n-- {
				p.Uvarint()
			}
		default:
			require.Fail(s.t, "unexpected", "kind %d", kind)
		}
	}
	require.False(s.t, p.Bad)
	return nil
}

// sums reads a shard to its end with a session of a client that wants checksums, or not.
func (m *member) sums(shard uint32, asks bool) *sums {
	n := m.node
	s := &session{n: n, wake: make(chan struct{}, 1), cursors: map[uint64]*cursor{}, shards: map[uint32]*watched{}}
	defer s.close()
	got := &sums{t: m.c.t, has: map[sharedlog.LSN]bool{}, fits: map[sharedlog.LSN]bool{}}
	s.take(&logpb.SessionRequest{Checksums: asks, Open: []*logpb.OpenCursor{{Id: 1, Shard: shard, Tags: []string{"x"}, From: 1, Credit: 1 << 20}}})
	for again := true; again; {
		var say bool
		say, again = s.round()
		if say {
			require.NoError(m.c.t, s.flush(sumStream{streamOf{&said{t: m.c.t}}, got}))
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
	head := body.AppendHead(nil, &g, w.opens, false)
	w.opens = false
	b := body.Wire{Head: len(head), Records: 1, Bytes: append(head, data...)}
	b.CRC = body.CRC(b.Bytes)
	prefix := b.AppendPrefix(binary.LittleEndian.AppendUint64(nil, w.number))
	require.NoError(w.c.t, w.st.Send(&transport.Raw{Parts: [][]byte{prefix, b.Bytes}}))
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
		require.NoError(t, o.err)
		require.EqualValues(t, i+1, o.first)
	}
	c.follows(0, 1)
	check := func(m *member, changed sharedlog.LSN) {
		t.Helper()
		got := m.sums(id, true)
		require.Len(t, got.has, n)
		for lsn, has := range got.has {
			require.Equal(t, !plain(lsn), has, "record %d", lsn)
			require.Equal(t, has && lsn != changed, got.fits[lsn], "record %d", lsn)
		}
		got = m.sums(id, false)
		require.Len(t, got.has, n)
		require.NotContains(t, slices.Collect(maps.Values(got.has)), true, "this client has not asked")
	}
	check(c.members[0], 0)
	check(c.members[1], 0)

	// The primary's memory changes a record after all checks of the group.
	g, err := c.members[0].replica(id).hub.Group(tagindex.Place{First: 4})
	require.NoError(t, err)
	g.Records[0].Data[0] ^= 1
	check(c.members[0], 4)
	reply, err := c.members[0].last(id, "x", 5)
	require.NoError(t, err)
	sum, _ := body.Compute(&sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: reply.GetData()}, nil)
	require.NotEqual(t, sum.At(4), reply.GetChecksum())
	reply, err = c.members[1].last(id, "x", 5)
	require.NoError(t, err)
	sum, _ = body.Compute(&sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: reply.GetData()}, nil)
	require.Equal(t, sum.At(4), reply.GetChecksum())
	reply, err = c.members[1].last(id, "x", 8)
	require.NoError(t, err)
	require.EqualValues(t, 7, reply.GetLsn())
	require.Nil(t, reply.Checksum)

	c.seal(id)
	c.full(id, 0, 1)
	c.place(id, 0, 1, 2)
	c.full(id, 2)
	check(c.members[2], 0) // by storage/fetch
	c.members[0].restart()
	c.full(id, 0)
	check(c.members[0], 0) // from disk
}
