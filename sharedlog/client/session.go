package client

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// reading holds the process's sessions and readers.
//
// Lock order: reader.mu, then reading.mu. Nothing is sent while either is held.
type reading struct {
	l *Log

	mu       sync.Mutex
	readers  map[*reader]struct{}
	sessions map[string]*session
	at       map[uint64]*placement // by cursor id
	last     uint64                // the last cursor id that was given
	closed   bool

	pause func(d time.Duration, f func()) // calls f after d, on another goroutine
	now   func() time.Time
}

// placement is the replica that a cursor reads from.
type placement struct {
	p       *part
	session *session
	try     int   // counts the replicas tried
	err     error // from the last replica that refused the cursor

	// For leaveStanding:
	frontier sharedlog.LSN // everything below has been received
	since    time.Time     // when it reached frontier, or the log's tail moved away from there
	idle     bool          // its shard is open, and nothing above frontier is known
	moved    time.Time     // when leaveStanding last moved it
	moves    int           // how often leaveStanding moved it
	late     time.Duration // how long it may stand before the next warning
	received int64         // bytes that the session's connection had received at since, or when it was placed
}

func (g *reading) init(l *Log) {
	g.l, g.readers, g.sessions, g.at = l, map[*reader]struct{}{}, map[string]*session{}, map[uint64]*placement{}
	g.pause = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	g.now = time.Now
	l.wg.Go(g.tell)
	l.wg.Go(g.watch)
}

// tell wakes all readers when the known shards change.
func (g *reading) tell() {
	for {
		_, _, changed := g.l.shards.list()
		g.mu.Lock()
		for r := range g.readers {
			r.signal()
		}
		g.mu.Unlock()
		select {
		case <-changed:
		case <-g.l.ctx.Done():
			return
		}
	}
}

func (g *reading) add(r *reader) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errClosed()
	}
	g.readers[r] = struct{}{}
	return nil
}

func (g *reading) remove(r *reader) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.readers, r)
}

func (g *reading) close() {
	g.mu.Lock()
	g.closed = true
	var readers []*reader
	for r := range g.readers {
		readers = append(readers, r)
	}
	g.mu.Unlock()
	for _, r := range readers {
		r.end(errClosed())
	}
}

// open opens a part's cursor on one of its shard's replicas. Called with reader.mu held.
func (g *reading) open(p *part, from sharedlog.LSN) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.last++
	p.id = g.last
	at := &placement{p: p}
	g.at[p.id] = at
	g.place(at, from)
}

// place opens a cursor on the next replica to try. Called with reader.mu and mu held.
func (g *reading) place(at *placement, from sharedlog.LSN) {
	sh := g.l.shards.get(at.p.shard)
	if sh == nil { // forgotten: the reader drops the part
		delete(g.at, at.p.id)
		at.p.r.signal()
		return
	}
	addr := sh.GetAddrs()[at.try%len(sh.GetAddrs())]
	s := g.sessions[addr]
	if s == nil {
		s = &session{g: g, addr: addr, wake: make(chan struct{}, 1), cursors: map[uint64]*part{}}
		s.ctx, s.cancel = context.WithCancel(g.l.ctx)
		g.sessions[addr] = s
		g.l.wg.Go(s.run)
	}
	at.session, at.received = s, s.received()
	s.cursors[at.p.id] = at.p
	r := at.p.r
	s.say.Open = append(s.say.Open, &logpb.OpenCursor{
		Id: at.p.id, Shard: at.p.shard, Tags: r.tags, From: uint64(from), Until: uint64(r.opt.Until),
		Credit: uint64(r.opt.Credit), Used: uint64(at.p.queued),
	})
	s.nudge()
}

// drop closes a part's cursor.
func (g *reading) drop(p *part) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.at[p.id]
	if at == nil {
		return
	}
	delete(g.at, p.id)
	at.session.close(p.id)
}

// credit sends back the credit of what a part has used.
func (g *reading) credit(p *part) {
	p.r.mu.Lock()
	used := p.used
	p.used = 0
	p.r.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := g.at[p.id]; at != nil {
		at.session.say.Credit = append(at.session.say.Credit, &logpb.Credit{Id: p.id, Bytes: uint64(used)})
		at.session.nudge()
	}
}

// move moves a part's cursor to its shard's next replica. It continues at what was received.
func (g *reading) move(p *part) {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.at[p.id]
	if at == nil || p.r.closed || g.closed {
		return
	}
	delete(g.at, p.id)
	at.session.close(p.id)
	// A new id: messages that still arrive for the old one are ignored.
	g.last++
	p.id, p.used = g.last, 0
	at.try++
	g.at[p.id] = at
	if p.frontier != everything {
		g.place(at, p.frontier)
	}
}

// leaveReplaced moves the cursors on nodes that no longer have a replica of their shard. Such a
// node may be cut off from the sequencers and not know that the shard is sealed: it answers that it
// is alive, but never sends a record.
func (g *reading) leaveReplaced() {
	g.mu.Lock()
	parts := map[uint64]*part{}
	for id, at := range g.at {
		if sh := g.l.shards.get(at.p.shard); sh != nil && at.session != nil && !slices.Contains(sh.GetAddrs(), at.session.addr) {
			parts[id] = at.p
		}
	}
	g.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(parts)) {
		g.move(parts[id])
	}
}

const (
	// standsFor is how long a cursor may receive nothing although there is more before it moves to
	// the next replica. It doubles after each round over all replicas, up to longestStand, so that a
	// replica with a slow disk is not left again and again.
	standsFor    = time.Second
	longestStand = 30 * time.Second
	// A cursor that receives nothing while its session's connection carries at least flow bytes may
	// be waiting for what is on its way over a slow link. It has slowLink times as long: to move it
	// would have the same sent again. And a session is not silent while that much arrives.
	flow     = 16 << 10
	slowLink = 8
	// tailEvery is how often a process whose cursors receive nothing asks for the log's tail.
	tailEvery = 2 * time.Second
	// damagedFor is how long a reader whose answering replicas are all damaged waits for the
	// others: they may be restarting.
	damagedFor = time.Minute
	// damagedRetry is the longest interval between two attempts.
	damagedRetry = time.Second / 2
)

// watch moves standing cursors until the log is closed.
func (g *reading) watch() {
	t := time.NewTicker(standsFor / 4)
	defer t.Stop()
	asked := g.now()
	for {
		select {
		case <-t.C:
			if g.leaveStanding() && g.now().Sub(asked) >= tailEvery {
				// A process that only reads learns of new records from the nodes it reads from.
				ctx, cancel := context.WithTimeout(g.l.ctx, standsFor)
				_, err := g.l.Tail(ctx)
				cancel()
				if asked = g.now(); err != nil {
					g.l.opt.Logger.Debug("cannot learn the log's tail", "error", err)
				}
			}
		case <-g.l.ctx.Done():
			return
		}
	}
}

// leaveStanding moves cursors that receive nothing although there is more below the log's tail. The
// cursor's node may be cut off from everything but this process, know neither of a seal nor of new
// cuts, and no other node may have replaced it in the shard. If no replica sends the next records,
// leaveStanding logs a warning. It reports whether a cursor on an open shard has received all that
// this process knows of, for a while.
func (g *reading) leaveStanding() (idle bool) {
	now := g.now()
	g.mu.Lock()
	on := maps.Clone(g.at)
	g.mu.Unlock()
	late := map[uint32][]any{}
	for _, id := range slices.Sorted(maps.Keys(on)) {
		at := on[id]
		if g.stands(id, at, now, late) {
			g.move(at.p)
		}
		idle = idle || at.idle && now.Sub(at.since) >= standsFor
	}
	for _, shard := range slices.Sorted(maps.Keys(late)) {
		g.l.opt.Logger.Warn("a reader waits: no replica of its shard that answers shows what comes next; start the nodes that are away, or see tailrace log rescue", late[shard]...)
	}
	return idle
}

// stands reports whether a cursor has received nothing, although there is more, for so long that it
// must move. It adds its shard to late if there should be a warning.
func (g *reading) stands(id uint64, at *placement, now time.Time, late map[uint32][]any) bool {
	p := at.p
	p.r.mu.Lock()
	waits := p.id == id && !p.r.closed && p.next == len(p.queue) && p.frontier != everything && p.lost == nil &&
		(p.r.opt.Until == 0 || p.frontier < p.r.opt.Until)
	frontier := p.frontier
	p.r.mu.Unlock()
	sh := g.l.shards.get(p.shard)
	idle := waits && sh != nil && !sh.GetSealed() && uint64(frontier) >= g.l.tail.Load()
	g.mu.Lock()
	received, err := at.session.received(), at.err
	slow := received-at.received >= flow
	if !waits || frontier != at.frontier || idle != at.idle || at.since.IsZero() {
		at.frontier, at.since, at.moved, at.moves, at.late, at.idle, at.received = frontier, now, now, 0, resolvePatience, idle, received
		g.mu.Unlock()
		return false
	}
	g.mu.Unlock()
	if sh == nil || idle || past(sh, frontier) {
		return false
	}
	times := time.Duration(1)
	if slow {
		times = slowLink
	}
	if now.Sub(at.since) >= times*at.late {
		at.late *= 2
		late[p.shard] = []any{
			"shard", p.shard, "from", uint64(frontier), "sealed", sh.GetSealed(), "sealed_at", sh.GetSealedAt(), "nodes", sh.GetAddrs(), "slow_link", slow, "error", err,
		}
	}
	if now.Sub(at.moved) < times*min(standsFor<<min(at.moves/len(sh.GetAddrs()), 10), longestStand) {
		return false
	}
	at.moved = now
	at.moves++
	return true
}

// session is the process's stream to one node, shared by all readers.
type session struct {
	g      *reading
	addr   string
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{}

	// open is the present stream, nil before the first.
	open atomic.Pointer[transport.ClientStream]

	// Guarded by reading.mu:
	cursors map[uint64]*part
	say     logpb.SessionRequest
}

// received returns how many bytes have come over the session's connection.
func (s *session) received() int64 {
	if st := s.open.Load(); st != nil {
		return (*st).Received()
	}
	return 0
}

// close closes a cursor, if it is still open on the present stream. Called with reading.mu held.
func (s *session) close(id uint64) {
	if _, ok := s.cursors[id]; ok {
		delete(s.cursors, id)
		s.say.Close = append(s.say.Close, id)
		s.nudge()
	}
}

func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run keeps the session open. When its stream fails, its cursors move to other replicas.
func (s *session) run() {
	patience := s.g.l.opt.Silence
	for s.ctx.Err() == nil {
		began := time.Now()
		err := s.stream(patience)
		if s.ctx.Err() != nil {
			return
		}
		s.g.l.opt.Logger.Debug("session ended", "node", s.addr, "error", err)
		s.broken()
		// A node that is silent repeatedly is only slow: wait longer.
		if patience *= 2; time.Since(began) > 20*patience {
			patience = s.g.l.opt.Silence
		}
		patience = min(patience, 2*time.Second)
		sleep(s.ctx, 5*time.Millisecond)
	}
}

// broken moves all cursors of a session to other replicas, after its stream ended.
func (s *session) broken() {
	s.g.mu.Lock()
	var parts []*part
	for _, p := range s.cursors {
		parts = append(parts, p)
	}
	clear(s.cursors)
	s.say.Reset()
	s.g.mu.Unlock()
	slices.SortFunc(parts, func(a, b *part) int { return cmp.Compare(a.id, b.id) })
	for _, p := range parts {
		s.g.move(p)
	}
}

// message returns the message to send next, or nil if there is nothing to send.
func (s *session) message() (m *logpb.SessionRequest, idle bool) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	idle = len(s.cursors) == 0
	if len(s.say.GetOpen())+len(s.say.GetCredit())+len(s.say.GetClose()) == 0 {
		return nil, idle
	}
	m = &logpb.SessionRequest{Open: s.say.Open, Credit: s.say.Credit, Close: s.say.Close}
	s.say.Reset()
	return m, idle
}

func (s *session) stream(patience time.Duration) error {
	// Open no stream before a reader needs this node.
	m, _ := s.message()
	for m == nil {
		select {
		case <-s.wake:
			m, _ = s.message()
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	m.Client, m.Checksums = s.g.l.opt.Name, true
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	st, err := s.g.l.opt.Dialer.Open(ctx, s.addr, "storage/session")
	if err != nil {
		return err
	}
	s.open.Store(&st)
	watch := newSilence(patience+time.Second, patience, st.Received, cancel) // the first message may need a connection
	defer watch.stop()
	failed := make(chan error, 1)
	go func() {
		defer cancel()
		for {
			var m transport.Raw
			if err := st.Recv(&m); err != nil {
				failed <- err
				return
			}
			watch.received()
			if err := s.receive(m.Bytes); err != nil {
				failed <- err
				return
			}
		}
	}()
	for {
		if m != nil {
			if err := st.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			select {
			case err := <-failed:
				return err
			default:
				return errors.New("silent")
			}
		}
		m, _ = s.message()
	}
}

// part returns a cursor's part, or nil if the cursor has moved or closed.
func (s *session) part(id uint64) *part {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.cursors[id]
}

// receive decodes a message. It ignores messages for cursors that have moved.
func (s *session) receive(b []byte) error {
	var m wire.SessionPart
	for len(b) > 0 {
		rest, err := m.Take(b)
		switch {
		case m.Damaged > 0:
			return s.damaged(m.Cursor, m.Damaged)
		case err != nil:
			return sharedlog.Errorf(sharedlog.KindCorrupt, "malformed message from %s", s.addr)
		}
		b = rest
		switch m.Kind {
		case wire.PartBatch, wire.PartSummed:
			if p := s.part(m.Cursor); p != nil {
				p.received(m.Cursor, m.Entries, m.Frontier, m.Opened)
			}
		case wire.PartFrontier:
			s.frontier(m.Shard, m.Frontier, m.Opened, m.Upto, m.Except)
		case wire.PartError:
			if p := s.part(m.Cursor); p != nil {
				s.failed(m.Cursor, p, m.Err)
			}
		}
	}
	return nil
}

// damaged handles a record that does not match its checksum: the cursor moves to another replica.
// Lengths in the message may be wrong, too, so the stream ends.
func (s *session) damaged(id uint64, lsn sharedlog.LSN) error {
	p := s.part(id)
	if p == nil {
		return sharedlog.Errorf(sharedlog.KindCorrupt, "record %d does not match its checksum", lsn)
	}
	err := s.g.l.damaged(p.shard, s.addr, lsn)
	s.failed(id, p, err)
	return err
}

func (s *session) frontier(shard uint32, frontier sharedlog.LSN, opened, upto uint64, except []uint64) {
	type cursor struct {
		id uint64
		p  *part
	}
	var on []cursor
	s.g.mu.Lock()
	for id, p := range s.cursors {
		if p.shard == shard && id <= upto && !has(except, id) {
			on = append(on, cursor{id, p})
		}
	}
	s.g.mu.Unlock()
	for _, c := range on {
		c.p.received(c.id, nil, frontier, opened)
	}
}

func has(ids []uint64, id uint64) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// failed handles a cursor's error. If another replica may do better, the cursor moves.
func (s *session) failed(id uint64, p *part, err error) {
	again := 5 * time.Millisecond
	switch sharedlog.KindOf(err) {
	case sharedlog.KindTrimmed, sharedlog.KindInvalid, sharedlog.KindQuota:
		p.r.end(err)
		return
	case sharedlog.KindLost:
		s.g.mu.Lock()
		s.close(id)
		s.g.mu.Unlock()
		p.r.mu.Lock()
		if id == p.id { // else it has moved meanwhile, and the next replica reports its own error
			p.gone(err)
		}
		p.r.mu.Unlock()
		p.r.signal()
		return
	case sharedlog.KindCorrupt:
		now := s.g.now()
		p.r.mu.Lock()
		if p.corrupt == nil {
			p.corrupt, p.corruptSince = map[string]int{}, now
		}
		p.corrupt[s.addr]++
		since, total := p.corruptSince, 0
		for _, n := range p.corrupt {
			total += n
		}
		// The reader drops the part of a shard that was forgotten.
		sh, forgotten := s.g.l.shards.find(p.shard)
		var away []string // their replicas may be undamaged
		for _, addr := range sh.GetAddrs() {
			if p.corrupt[addr] == 0 {
				away = append(away, addr)
			}
		}
		p.r.mu.Unlock()
		switch n := len(sh.GetAddrs()); {
		case forgotten:
		case len(away) == 0 && total > 2*n, now.Sub(since) >= damagedFor:
			p.r.end(sharedlog.Errorf(sharedlog.KindCorrupt, "node %s, shard %d: %w; none of the shard's nodes (%s) that answer shows it undamaged: start those that are away%s, put the file back from a copy, or begin behind it",
				s.addr, p.shard, err, strings.Join(sh.GetAddrs(), ", "), named(away)))
			return
		default:
			again = min(again<<min(total/n, 10), damagedRetry)
		}
	}
	s.g.mu.Lock()
	s.close(id)
	if at := s.g.at[id]; at != nil {
		at.err = err
	}
	s.g.mu.Unlock()
	s.g.pause(again, func() { s.g.move(p) })
}

// named formats addresses as " (a, b)", to follow a description of them.
func named(addrs []string) string {
	if len(addrs) == 0 {
		return ""
	}
	return " (" + strings.Join(addrs, ", ") + ")"
}
