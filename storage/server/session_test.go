package server

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// said records what a session has sent: the bytes of record data for each cursor, and for each
// shard the cursors that its newest frontier excludes.
type said struct {
	t      testing.TB
	bytes  map[uint64]int
	behind map[uint32][]uint64
}

func (s *said) Send(m any) error {
	b := slices.Concat(m.(*transport.Raw).Parts...)
	for len(b) > 0 {
		var p wire.SessionPart
		var err error
		b, err = p.Take(b)
		require.NoError(s.t, err)
		switch p.Kind {
		case wire.PartHeartbeat:
		case wire.PartBatch:
			for _, e := range p.Entries {
				s.bytes[p.Cursor] += len(e.Data)
			}
		case wire.PartFrontier:
			s.behind[p.Shard] = p.Except
		default:
			require.Fail(s.t, "unexpected", "kind %d", p.Kind)
		}
	}
	return nil
}

// A cursor gets as much as its credit allows, less what it already used on the replica where it was
// before, and no frontier beyond what it has received.
func TestCreditOfACursor(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	c.writer("w", id, 0).append(20, "x") // one kilobyte each
	c.follows(0)
	n := c.members[0].node
	s := n.sessions.New()
	defer s.Close()
	got := &said{t: t, bytes: map[uint64]int{}, behind: map[uint32][]uint64{}}
	all := func() {
		for again := true; again; {
			var say bool
			say, again = s.Round()
			if say {
				require.NoError(t, s.Flush(streamOf{got}))
			}
		}
	}
	open := func(id, credit, used uint64) *logpb.OpenCursor {
		return &logpb.OpenCursor{Id: id, Shard: 1, Tags: []string{"x"}, From: 1, Credit: credit, Used: used}
	}
	s.Take(&logpb.SessionRequest{Open: []*logpb.OpenCursor{open(1, 4000, 0), open(2, 4000, 4000), open(3, 1<<20, 0)}})
	all()
	require.Zero(t, got.bytes[2], "its credit is in use")
	require.GreaterOrEqual(t, got.bytes[1], 4000)
	require.Less(t, got.bytes[1], 15000)
	require.Greater(t, got.bytes[3], 20_000)
	require.ElementsMatch(t, []uint64{1, 2}, got.behind[id], "the frontier holds for the third one only")
	s.Take(&logpb.SessionRequest{Credit: []*logpb.Credit{{Id: 2, Bytes: 2000}}})
	all()
	require.GreaterOrEqual(t, got.bytes[2], 2000)
	s.Take(&logpb.SessionRequest{Credit: []*logpb.Credit{{Id: 1, Bytes: 1 << 20}, {Id: 2, Bytes: 1 << 20}}})
	all()
	require.Equal(t, got.bytes[3], got.bytes[1])
	require.Equal(t, got.bytes[3], got.bytes[2])
}

// streamOf is the sending end of a stream.
type streamOf struct{ *said }

func (s streamOf) Context() context.Context { return s.t.Context() }

func (s streamOf) Recv(any) error {
	<-s.t.Context().Done()
	return s.t.Context().Err()
}
