// Package session serves readers: a client has one stream to a node, a session, with a cursor for
// each of its readers and shards (wire.SessionMessage). A session sends what the cursors' credit
// allows, frontiers, and errors; a client then uses another replica.
package session

import (
	"errors"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/server/table"
)

const (
	// beatEvery is the longest time between two messages of a session: a reader leaves a replica
	// that is silent.
	beatEvery = 15 * time.Millisecond

	// Everything is the frontier of a shard that is complete.
	Everything sharedlog.LSN = math.MaxUint64
)

// Options configures a Server.
type Options struct {
	Addr  string // of the node
	Table *table.Table
	// Replica returns the node's replica of a shard, nil if it has none.
	Replica func(shard uint32) *Replica
	// ClientTags bounds the tags that the cursors of a client follow together; ≤ 0: no bound.
	ClientTags int
	Quit       <-chan struct{} // closed when the node stops
}

// Server serves the sessions of a node.
type Server struct {
	opt     Options
	open    atomic.Int64
	refused atomic.Uint64
}

// NewServer returns a server.
func NewServer(o Options) *Server { return &Server{opt: o} }

// Open returns the number of sessions.
func (n *Server) Open() int64 { return n.open.Load() }

// Refused returns the number of cursors that were refused because of ClientTags.
func (n *Server) Refused() uint64 { return n.refused.Load() }

// Session is a client's stream with its cursors on this node's shards.
type Session struct {
	n    *Server
	wake chan struct{}

	mu      sync.Mutex
	cursors map[uint64]*cursor
	shards  map[uint32]*watched
	last    uint64 // highest cursor number
	name    string // of the client, as it reports
	sums    bool   // the client wants checksums
	tags    int    // number of tags that its cursors follow

	message wire.SessionMessage
}

// New returns a session that has no cursors yet.
func (n *Server) New() *Session {
	return &Session{n: n, wake: make(chan struct{}, 1), cursors: map[uint64]*cursor{}, shards: map[uint32]*watched{}}
}

// cursor is one reader of one shard.
type cursor struct {
	id     uint64
	reader *delivery.Cursor
	credit int64 // bytes that may still be sent; negative after a large group
	pos    sharedlog.LSN
	told   sharedlog.LSN // the last frontier that was sent
	ended  bool
	tags   int
	// lost is the LSN from which records of the shard had been given up when the cursor was opened;
	// bounded is set if the reader ends there, before the end that the client wants.
	lost    sharedlog.LSN
	bounded bool
}

// watched is a shard on which the session has cursors.
type watched struct {
	id      uint32
	replica *Replica
	hub     *delivery.Hub
	cursors []*cursor
}

// Serve serves one session.
func (n *Server) Serve(st transport.Stream) error {
	s := n.New()
	n.open.Add(1)
	defer n.open.Add(-1)
	defer s.Close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			req := new(logpb.SessionRequest)
			if st.Recv(req) != nil {
				return
			}
			s.Take(req)
			s.wakeUp()
		}
	}()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		full, again := s.Round()
		if !full && !again {
			select {
			case <-s.wake:
				continue
			case <-gone:
				return nil
			case <-n.opt.Quit:
				return sharedlog.Errorf(sharedlog.KindClosed, "node %s", n.opt.Addr)
			case <-beat.C:
				s.mu.Lock()
				s.message.Heartbeat()
				s.leaveHanging()
				s.mu.Unlock()
			}
		}
		if err := s.Flush(st); err != nil {
			return nil
		}
	}
}

func (s *Session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Take applies a request.
func (s *Session) Take(req *logpb.SessionRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.GetClient() != "" {
		s.name = req.GetClient()
	}
	s.sums = s.sums || req.GetChecksums()
	for _, id := range req.GetClose() { // before Open: the cursors count against the quota
		s.drop(id)
	}
	for _, o := range req.GetOpen() {
		s.last = max(s.last, o.GetId())
		if err := s.open(o); err != nil {
			s.cursors[o.GetId()] = &cursor{id: o.GetId(), ended: true}
			s.failed(o.GetId(), err)
		}
	}
	for _, c := range req.GetCredit() {
		if cur := s.cursors[c.GetId()]; cur != nil {
			cur.credit += int64(c.GetBytes())
		}
	}
	for _, id := range req.GetClose() {
		s.drop(id)
	}
}

func (s *Session) open(o *logpb.OpenCursor) error {
	r := s.n.opt.Replica(o.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s has no replica of shard %d", s.n.opt.Addr, o.GetShard())
	}
	if r.Stale() {
		return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s is being copied", r.Shard, s.n.opt.Addr)
	}
	if r.Hung.Load() {
		return s.errHangs(r.Shard)
	}
	opt := sharedlog.ReaderOptions{From: sharedlog.LSN(o.GetFrom()), Until: sharedlog.LSN(o.GetUntil()), Credit: int(o.GetCredit())}
	for _, t := range o.GetTags() {
		opt.Tags = append(opt.Tags, sharedlog.Tag(t))
	}
	if err := opt.Validate(); err != nil {
		return err
	}
	lost, bounded := r.LostFrom(), false
	if lost > 0 && opt.From < sharedlog.LSN(r.Describe().GetSealedAt()) {
		if opt.From >= lost {
			for _, t := range opt.Tags {
				if at := s.n.opt.Table.TrimPoint(t); at > opt.From {
					return sharedlog.Errorf(sharedlog.KindTrimmed, "reader at %d: tag %q begins at %d; begin there", opt.From, t, at)
				}
			}
			return r.ErrLost(lost)
		}
		if opt.Until == 0 || opt.Until > lost {
			opt.Until, bounded = lost, true
		}
	}
	if err := s.takeQuota(len(opt.Tags)); err != nil {
		return err
	}
	reader, err := r.Hub.NewReader(opt, s.n.opt.Table.TrimPoint)
	if err != nil {
		s.tags -= len(opt.Tags)
		return err
	}
	c := &cursor{id: o.GetId(), tags: len(opt.Tags), lost: lost, bounded: bounded, reader: reader, credit: int64(o.GetCredit()) - int64(o.GetUsed()), pos: opt.From}
	s.cursors[c.id] = c
	w := s.shards[r.Shard]
	if w == nil || w.hub != r.Hub {
		if w != nil {
			// Another replica has replaced the one that these cursors read. A frontier of the new
			// replica must not count for them.
			for _, old := range w.cursors {
				if !old.ended {
					old.ended = true
					s.failed(old.id, sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s was replaced", r.Shard, s.n.opt.Addr))
				}
			}
			w.hub.Unwatch(s.wake)
		}
		w = &watched{id: r.Shard, replica: r, hub: r.Hub}
		s.shards[r.Shard] = w
		r.Hub.Watch(s.wake)
	}
	w.cursors = append(w.cursors, c)
	return nil
}

func (s *Session) errHangs(shard uint32) error {
	return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s stands still: its disk does not answer", shard, s.n.opt.Addr)
}

// leaveHanging ends the cursors on replicas that stand still, so that the client uses other
// replicas. The caller holds mu.
func (s *Session) leaveHanging() {
	for _, w := range s.shards {
		if !w.replica.Hung.Load() {
			continue
		}
		for _, c := range w.cursors {
			if !c.ended {
				c.ended = true
				s.failed(c.id, s.errHangs(w.id))
			}
		}
	}
}

func (s *Session) drop(id uint64) {
	c := s.cursors[id]
	delete(s.cursors, id)
	if c == nil || c.reader == nil {
		return
	}
	s.tags -= c.tags
	_ = c.reader.Close()
	for shard, w := range s.shards {
		w.cursors = slices.DeleteFunc(w.cursors, func(o *cursor) bool { return o == c })
		if len(w.cursors) == 0 {
			w.hub.Unwatch(s.wake)
			delete(s.shards, shard)
		}
	}
}

// Close closes the session's cursors.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.cursors {
		s.drop(id)
	}
}

// Round adds available batches and frontiers to the message. full reports that the message is not
// empty, again that more is available.
func (s *Session) Round() (full, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { full = !s.message.Empty() }()
	for _, w := range s.shards {
		// Read before the cursors' TryNext and before opened: the cursors then see all that lies
		// below the frontier, and opened counts all shards that were opened below it.
		frontier := w.hub.Tail()
		_, _, opened := s.n.opt.Table.At()
		lacks := w.replica.Lacks.Load()
		var behind []uint64
		news := false
		for _, c := range w.cursors {
			for c.credit > 0 && !c.ended && !s.message.Full() {
				b, err := c.reader.TryNext()
				if c.lost != w.replica.LostFrom() {
					// It may have delivered records beyond the lost ones: the client reopens it.
					err = sharedlog.Errorf(sharedlog.KindClosed, "records of shard %d were given up", w.id)
				}
				if err != nil {
					c.ended = true
					switch {
					case errors.Is(err, io.EOF) && c.bounded:
						s.batch(c.id, nil, c.lost, nil)
						s.failed(c.id, w.replica.ErrLost(c.lost))
					case errors.Is(err, io.EOF):
						c.pos = Everything
					default:
						s.failed(c.id, err)
					}
					break
				}
				c.pos = max(c.pos, b.Frontier)
				if len(b.Entries) == 0 {
					break
				}
				c.credit -= s.batches(c.id, &b, c.reader.Sums())
			}
			switch {
			case c.pos < frontier:
				behind = append(behind, c.id)
				again = again || c.credit > 0 && !c.ended
			case c.told < frontier:
				c.told, news = frontier, true
			case lacks != nil && !c.ended:
				// The cursor would wait here for records that another replica may have.
				c.ended = true
				s.failed(c.id, *lacks)
			}
		}
		if news {
			s.message.Frontier(w.id, frontier, opened, s.last, behind)
		}
	}
	return full, again
}

// batches adds a batch to the message, split where records with checksums and records without meet.
// It returns the number of bytes of record data.
func (s *Session) batches(id uint64, b *sharedlog.Batch, sums []wire.Sum) (data int64) {
	if !s.sums {
		return s.batch(id, b.Entries, b.Frontier, nil)
	}
	for from := 0; from < len(b.Entries); {
		to := from + 1
		for to < len(b.Entries) && sums[to].Known() == sums[from].Known() {
			to++
		}
		frontier := b.Frontier
		if to < len(b.Entries) {
			frontier = b.Entries[to].LSN
		}
		part := sums[from:to]
		if !sums[from].Known() {
			part = nil
		}
		data += s.batch(id, b.Entries[from:to], frontier, part)
		from = to
	}
	return data
}

// batch adds records to the message, with checksums if sums is not nil. It returns the number of
// bytes of record data.
func (s *Session) batch(id uint64, entries []sharedlog.Entry, frontier sharedlog.LSN, sums []wire.Sum) int64 {
	_, _, opened := s.n.opt.Table.At() // read after the reader's TryNext: counts all shards below
	return s.message.Batch(id, frontier, opened, entries, sums)
}

func (s *Session) failed(id uint64, err error) { s.message.Error(id, err) }

// Flush sends the message.
func (s *Session) Flush(st transport.Stream) error {
	s.mu.Lock()
	parts := s.message.Take()
	s.mu.Unlock()
	if len(parts) == 0 {
		return nil
	}
	return st.Send(&transport.Raw{Parts: parts})
}

// takeQuota adds the tags of a new cursor to its client's. The caller holds mu.
func (s *Session) takeQuota(tags int) error {
	limit := s.n.opt.ClientTags
	if limit <= 0 || s.tags == 0 || s.tags+tags <= limit {
		s.tags += tags
		return nil
	}
	s.n.refused.Add(1)
	return sharedlog.Errorf(sharedlog.KindQuota,
		"client %q has cursors that follow %d tags at node %s, and one more with %d tags would make more than the %d that it allows a client (--client-tags): close readers that are not used, follow fewer tags, or raise the limit",
		s.name, s.tags, s.n.opt.Addr, tags, limit)
}
