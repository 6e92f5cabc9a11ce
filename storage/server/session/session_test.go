package session

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/table"
	"tailrace.dev/tailrace/storage/tagindex"
)

// node is a node with one shard, and a session of a client.
type node struct {
	t       *testing.T
	replica *Replica
	stale   bool
	table   table.Table
	server  *Server
	*Session
}

type footers struct{}

func (footers) Footer(id segment.ID) ([]byte, error) {
	return nil, sharedlog.Errorf(sharedlog.KindTrimmed, "segment %v", id)
}

func newNode(t *testing.T) *node {
	n := &node{t: t}
	n.table.InitEmpty()
	n.replica = n.newReplica()
	n.server = NewServer(Options{Addr: "node", Table: &n.table, ClientTags: 4, Replica: func(shard uint32) *Replica {
		if shard != 1 {
			return nil
		}
		return n.replica
	}})
	n.Session = n.server.New()
	t.Cleanup(n.Close)
	return n
}

// newReplica returns a replica of the shard, sealed at 9, that shows no records below 5.
func (n *node) newReplica() *Replica {
	x, err := tagindex.Open(footers{}, nil, tagindex.Options{})
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, x.Close()) })
	return &Replica{
		Shard:    1,
		Hub:      delivery.New(delivery.Options{Index: x, CacheBytes: 1 << 20, Readers: &delivery.Budget{Limit: 1 << 20}, Tail: 5}),
		Describe: func() *logpb.Shard { return &logpb.Shard{Id: 1, Length: 8, Lost: 3, SealedAt: 9} },
		Stale:    func() bool { return n.stale },
	}
}

func cursorOf(id uint64, shard uint32, from uint64, tags ...string) *logpb.SessionRequest {
	return &logpb.SessionRequest{Client: "reader", Open: []*logpb.OpenCursor{{Id: id, Shard: shard, Tags: tags, From: from, Credit: 1 << 20}}}
}

// parts takes a request, if it is not nil, and returns what the session then sends.
func (n *node) parts(req *logpb.SessionRequest) (all []wire.SessionPart) {
	n.t.Helper()
	if req != nil {
		n.Take(req)
	}
	for again := true; again; {
		_, again = n.Round()
	}
	b := slices.Concat(n.message.Take()...)
	for len(b) > 0 {
		var p wire.SessionPart
		var err error
		b, err = p.Take(b)
		require.NoError(n.t, err)
		all = append(all, p)
	}
	return all
}

// fails is parts that are one error, of this cursor.
func (n *node) fails(req *logpb.SessionRequest, cursor uint64, kind error, text string) {
	n.t.Helper()
	all := n.parts(req)
	require.Len(n.t, all, 1)
	require.Equal(n.t, wire.PartError, all[0].Kind)
	require.Equal(n.t, cursor, all[0].Cursor)
	require.ErrorIs(n.t, all[0].Err, kind)
	require.ErrorContains(n.t, all[0].Err, text)
}

// frontier is parts that are one frontier; it counts for the cursors up to this one.
func (n *node) frontier(req *logpb.SessionRequest, at sharedlog.LSN, upto uint64) {
	n.t.Helper()
	all := n.parts(req)
	require.Len(n.t, all, 1)
	require.Equal(n.t, wire.PartFrontier, all[0].Kind)
	require.Equal(n.t, []any{at, upto}, []any{all[0].Frontier, all[0].Upto})
	require.Empty(n.t, all[0].Except)
}

// A client's cursors may follow so many tags together; the first one may follow any number. A cursor
// that is closed counts no longer, also for one of the same request.
func TestQuota(t *testing.T) {
	n := newNode(t)
	n.frontier(cursorOf(1, 1, 1, "a", "b", "c", "d", "e"), 5, 1)
	n.fails(cursorOf(2, 1, 1, "a"), 2, sharedlog.ErrQuota, `client "reader" has cursors that follow 5 tags at node node`)
	require.EqualValues(t, 1, n.server.Refused())
	both := cursorOf(3, 1, 1, "a", "b", "c")
	both.Close = []uint64{1}
	n.frontier(both, 5, 3)
	n.frontier(cursorOf(4, 1, 1, "a"), 5, 4)
	n.fails(cursorOf(5, 1, 1, "a"), 5, sharedlog.ErrQuota, "follow 4 tags")
	other := &node{t: t, Session: n.server.New()}
	defer other.Close()
	other.frontier(cursorOf(1, 1, 1, "a", "b", "c", "d"), 5, 1)
}

// A cursor that cannot be served is refused, with the reason, so that the client uses another
// replica.
func TestRefused(t *testing.T) {
	n := newNode(t)
	n.fails(cursorOf(1, 2, 1, "a"), 1, sharedlog.ErrClosed, "node node has no replica of shard 2")
	n.stale = true
	n.fails(cursorOf(2, 1, 1, "a"), 2, sharedlog.ErrClosed, "is being copied")
	n.stale = false
	n.replica.Hung.Store(true)
	n.fails(cursorOf(3, 1, 1, "a"), 3, sharedlog.ErrClosed, "its disk does not answer")
	n.replica.Hung.Store(false)
	n.fails(cursorOf(4, 1, 1), 4, sharedlog.ErrInvalid, "tag")
	n.frontier(cursorOf(5, 1, 1, "a"), 5, 5)
}

// A replica that hangs while cursors read it, and one that another replica has replaced, end their
// cursors; a frontier of the new replica counts for its own cursors only.
func TestCursorsLeaveTheirReplica(t *testing.T) {
	n := newNode(t)
	n.frontier(cursorOf(1, 1, 1, "a"), 5, 1)
	n.leaveHanging()
	require.Empty(t, n.parts(nil))
	n.replica.Hung.Store(true)
	n.leaveHanging()
	n.fails(nil, 1, sharedlog.ErrClosed, "its disk does not answer")
	n.leaveHanging()
	require.Empty(t, n.parts(nil), "it is told once")

	n.replica = n.newReplica()
	n.frontier(cursorOf(2, 1, 1, "a"), 5, 2)
	n.replica = n.newReplica()
	n.Take(cursorOf(3, 1, 1, "a"))
	all := n.parts(nil)
	require.Len(t, all, 2)
	require.Equal(t, []any{wire.PartError, uint64(2)}, []any{all[0].Kind, all[0].Cursor})
	require.ErrorContains(t, all[0].Err, "was replaced")
	require.Equal(t, []any{wire.PartFrontier, uint64(3)}, []any{all[1].Kind, all[1].Upto})
}

// Records of the shard were given up from 6 on: a cursor behind them gets the error, unless its tag
// was trimmed there. When they are given up below an open cursor the client has to open it again.
func TestLost(t *testing.T) {
	n := newNode(t)
	n.frontier(cursorOf(1, 1, 1, "a"), 5, 1)
	n.replica.Lost.Store(6)
	n.fails(nil, 1, sharedlog.ErrClosed, "records of shard 1 were given up")
	n.fails(cursorOf(2, 1, 6, "a"), 2, sharedlog.ErrLost, "shard 1")
	n.table.Apply(&logpb.Event{Index: 1, What: &logpb.Event_Trim{Trim: &logpb.TrimPoint{Tag: "a", Before: 8}}})
	n.fails(cursorOf(3, 1, 6, "a"), 3, sharedlog.ErrTrimmed, "begins at 8")
	n.frontier(cursorOf(4, 1, 9, "a"), 5, 4)
}

// A replica that lacks the end of a sealed shard, and knows that no other one supplies it, does not
// let its cursors wait for it: another replica may have more.
func TestLacks(t *testing.T) {
	n := newNode(t)
	n.frontier(cursorOf(1, 1, 1, "a"), 5, 1)
	var why error = sharedlog.Errorf(sharedlog.KindCorrupt, "no replica supplies the rest")
	n.replica.Lacks.Store(&why)
	n.fails(nil, 1, sharedlog.ErrCorrupt, "no replica supplies the rest")
	require.Empty(t, n.parts(nil))
}
