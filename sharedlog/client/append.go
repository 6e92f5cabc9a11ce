package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

const (
	// resolveTimeout bounds one resolve request to one replica of a sealed shard.
	resolveTimeout = 400 * time.Millisecond
	// resolvePatience is how long a resolve may go unanswered before the first warning is logged.
	resolvePatience = 2 * time.Second
)

// sumsLevel is the lowest feature level of the cluster at which every storage node reads groups
// with record checksums.
const sumsLevel = 2

// sending is a group in flight.
type sending struct {
	seq     uint64 // position among the groups of its home
	home    *home  // until it is answered, or the home is sealed
	writer  *writer
	number  uint64
	pending *sharedlog.Pending
	head    []byte
	data    [][]byte
	crc     uint32
	bytes   int // bytes of data
	records int
	done    bool
}

// writer is the state of one writer name. Guarded by appending.mu.
type writer struct {
	name string
	home *home
	// opens is the first number of the writer's session on its home.
	opens uint64
	// known is the highest number that took effect, or may have, as far as this process knows.
	known uint64
	// moving: the home is sealed, and groups in flight are being resolved. leaving: the home will
	// be sealed soon, and groups in flight are being answered. held are the groups that were
	// appended meanwhile.
	moving, leaving bool
	held            []*sending
	// waiting counts the groups that the home has and has not answered.
	waiting int
	// void is the error of a group without effect; no later group of this writer has one either.
	void error
}

// appending is the state of all appends in flight.
type appending struct {
	l *Log

	mu      sync.Mutex
	space   sync.Cond
	bytes   int64
	writers map[string]*writer
	homes   map[uint32]*home // by shard; only unsealed ones
	closed  bool
}

func (a *appending) init(l *Log) {
	a.l, a.writers, a.homes = l, map[string]*writer{}, map[uint32]*home{}
	a.space.L = &a.mu
}

// Append implements sharedlog.Log.
func (l *Log) Append(g sharedlog.Group) *sharedlog.Pending {
	p := sharedlog.NewPending()
	if err := g.Validate(); err != nil {
		p.Complete(0, err)
		return p
	}
	s := &sending{number: g.Number, pending: p, records: len(g.Records)}
	s.head = wire.AppendHead(nil, &g, false, l.shards.level.Load() >= sumsLevel)
	for i := range g.Records {
		if d := g.Records[i].Data; len(d) > 0 {
			s.data = append(s.data, d)
			s.bytes += len(d)
		}
	}
	l.groups.Add(1)
	l.records.Add(uint64(s.records))
	l.bytes.Add(uint64(s.bytes))
	l.appending.start(g.Writer, s)
	return p
}

func (s *sending) cost() int64 { return int64(s.bytes+len(s.head)) + 256 }

// start waits for room and sends a group to its writer's home.
func (a *appending) start(name string, s *sending) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.closed && a.bytes > 0 && a.bytes+s.cost() > a.l.opt.QueueBytes {
		a.space.Wait()
	}
	if a.closed {
		s.pending.Complete(0, errClosed())
		return
	}
	a.bytes += s.cost()
	w := a.writers[name]
	if w == nil {
		w = &writer{name: name, opens: 1}
		a.writers[name] = w
	}
	s.writer = w
	a.route(s)
}

// route gives a group to its writer's home. Called with mu held.
func (a *appending) route(s *sending) {
	w := s.writer
	switch {
	case w.void != nil:
		a.finish(s, 0, w.void)
		return
	case w.moving || w.leaving:
		w.held = append(w.held, s)
		return
	case s.number < w.opens:
		// An earlier home, which is sealed, took it. The present home would answer ErrOutOfOrder,
		// which means that the group is certainly not in the log.
		a.finish(s, 0, sharedlog.Errorf(sharedlog.KindUnknown, "group %d of writer %q was taken by a shard that is sealed by now", s.number, w.name))
		return
	case w.home != nil && w.home.retired && w.waiting > 0:
		w.leaving = true
		w.held = append(w.held, s)
		return
	case w.home == nil || w.home.sealed || w.home.retired:
		w.opens = w.known + 1 // as far as its homes so far are concerned
		if w.home = a.choose(w.name); w.home == nil {
			w.moving = true
			w.held = append(w.held, s)
			a.l.wg.Go(func() { a.rehome([]*writer{w}) })
			return
		}
	}
	w.home.add(s)
}

// choose returns the home for a writer that has none, or nil if no shard is open. Called with mu
// held.
func (a *appending) choose(name string) *home {
	homes, _ := a.l.shards.homes()
	if len(homes) == 0 {
		return nil
	}
	sh := homes[xxhash.Sum64String(name)%uint64(len(homes))]
	h := a.homes[sh.GetId()]
	if h == nil {
		h = &home{a: a, shard: sh.GetId(), addr: sh.GetAddrs()[0], wake: make(chan struct{}, 1)}
		h.ctx, h.cancel = context.WithCancel(a.l.ctx)
		a.homes[h.shard] = h
		a.l.wg.Go(h.run)
	}
	h.retired = false // the shard that was to replace it is gone
	return h
}

// retired marks a shard that will be sealed soon because a newer one was opened on the same
// primary. Its writers leave it once they have no group in flight there.
func (l *Log) retired(id uint32) {
	l.appending.mu.Lock()
	defer l.appending.mu.Unlock()
	if h := l.appending.homes[id]; h != nil {
		h.retired = true
	}
}

// leave routes the groups that a writer has held, once none of its groups is in flight to the home
// that it leaves. Called with mu held.
func (a *appending) leave(w *writer) {
	held := w.held
	w.leaving, w.held = false, nil
	for _, s := range held {
		if !s.done {
			a.route(s)
		}
	}
}

// finish completes a group. Called with mu held.
func (a *appending) finish(s *sending, first sharedlog.LSN, err error) {
	if s.done {
		return
	}
	s.done = true
	if s.home != nil {
		s.home = nil
		s.writer.waiting--
	}
	a.bytes -= s.cost()
	a.space.Broadcast()
	switch {
	case err == nil:
		s.writer.known = max(s.writer.known, s.number)
		a.l.sawTail(first + sharedlog.LSN(s.records))
	case sharedlog.KindOf(err) == sharedlog.KindConditionFailed && s.writer.void == nil:
		s.writer.void = err
	}
	s.pending.Complete(first, err)
	if w := s.writer; w.leaving && w.waiting == 0 && !a.closed {
		a.leave(w)
	}
}

func (a *appending) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	unknown := sharedlog.Errorf(sharedlog.KindUnknown, "the log was closed before the outcome was known")
	for _, h := range a.homes {
		for _, s := range h.pending {
			a.finish(s, 0, unknown)
		}
	}
	for _, w := range a.writers {
		for _, s := range w.held {
			a.finish(s, 0, unknown)
		}
	}
	a.space.Broadcast()
}

// home is a shard's primary, as writers see it. Its fields are guarded by appending.mu.
type home struct {
	a      *appending
	shard  uint32
	addr   string
	ctx    context.Context // until the seal
	cancel context.CancelFunc
	wake   chan struct{}

	seq     uint64
	pending []*sending // unanswered, in order; completed ones are removed when they are first
	sent    uint64     // highest seq sent on the present stream
	sealed  bool
	retired bool // it will be sealed soon

	streams uint64 // number of streams opened; only run uses it
}

// add queues a group for sending. Called with mu held.
func (h *home) add(s *sending) {
	if s.seq > 0 {
		s.head = slices.Clone(s.head) // the old stream may still use it
	}
	h.seq++
	s.seq = h.seq
	wire.SetOpens(s.head, s.number == s.writer.opens)
	s.crc = wire.CRC(s.head, s.data...)
	h.pending = append(h.pending, s)
	s.home = h
	s.writer.waiting++
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run keeps a stream to the primary until the shard is sealed.
func (h *home) run() {
	for h.ctx.Err() == nil {
		err := h.stream()
		if h.ctx.Err() == nil {
			h.a.l.opt.Logger.Debug("append stream ended", "shard", h.shard, "primary", h.addr, "error", err)
			sleep(h.ctx, 15*time.Millisecond)
		}
	}
}

func (h *home) stream() error {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	st, err := h.a.l.opt.Dialer.Open(ctx, h.addr, "storage/append")
	if err != nil {
		return err
	}
	h.streams++
	if err := st.Hello(&logpb.AppendHello{Shard: h.shard, Client: h.a.l.opt.Name, Id: h.a.l.id, Epoch: h.streams}); err != nil {
		return err
	}
	h.a.mu.Lock()
	h.sent = 0 // resend everything without an answer, in order
	h.a.mu.Unlock()
	failed := make(chan error, 1)
	go func() {
		defer cancel()
		for {
			var m transport.Raw
			if err := st.Recv(&m); err != nil {
				failed <- err
				return
			}
			if err := h.answers(m.Bytes); err != nil {
				failed <- err
				return
			}
		}
	}()
	for {
		m, ok := h.next()
		if ok {
			if err := st.Send(m); err != nil {
				return err
			}
			continue
		}
		select {
		case <-h.wake:
		case <-ctx.Done():
			select {
			case err := <-failed:
				return err
			default:
				return ctx.Err()
			}
		}
	}
}

// next returns a message with groups that have not been sent on this stream.
func (h *home) next() (*transport.Raw, bool) {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(h.pending, h.sent+1, func(s *sending, seq uint64) int { return int(int64(s.seq) - int64(seq)) })
	var parts [][]byte
	bytes := 0
	var prefix []byte
	for ; i < len(h.pending) && bytes < wire.MessageBytes; i++ {
		s := h.pending[i]
		h.sent = s.seq
		if s.done {
			continue
		}
		at := len(prefix)
		if cap(prefix)-at < wire.SubmissionHead { // parts point into it
			prefix, at = make([]byte, 0, 64*wire.SubmissionHead), 0
		}
		prefix = wire.AppendSubmission(prefix, s.seq, s.crc, len(s.head), s.bytes, s.records)
		parts = append(parts, prefix[at:len(prefix):len(prefix)], s.head)
		parts = append(parts, s.data...)
		bytes += len(s.head) + s.bytes
	}
	return &transport.Raw{Parts: parts}, len(parts) > 0
}

// answers handles the primary's answers.
func (h *home) answers(b []byte) error {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	for len(b) > 0 {
		var a wire.Answer
		var err error
		if b, err = a.Take(b); err != nil {
			return sharedlog.Errorf(sharedlog.KindCorrupt, "truncated answer from %s", h.addr)
		}
		if sharedlog.KindOf(a.Err) == sharedlog.KindSealed {
			continue // the seal, which arrives from the sequencer, says more
		}
		i, ok := slices.BinarySearchFunc(h.pending, a.Sequence, func(s *sending, seq uint64) int { return int(int64(s.seq) - int64(seq)) })
		if ok {
			h.a.finish(h.pending[i], a.First, a.Err)
		}
	}
	n := 0
	for n < len(h.pending) && h.pending[n].done {
		h.pending[n] = nil
		n++
	}
	if h.pending = h.pending[n:]; len(h.pending) == 0 {
		h.pending = nil
	}
	return nil
}

// sealed handles a shard's seal: its writers resolve their groups in flight and continue on another
// shard.
func (l *Log) sealed(sh *logpb.Shard) {
	a := &l.appending
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.homes[sh.GetId()]
	if h == nil || h.sealed {
		return
	}
	h.sealed = true
	h.cancel()
	delete(a.homes, sh.GetId()) // shards no longer lists it as open, so choose does not return it
	byWriter := map[*writer][]*sending{}
	var writers []*writer
	for _, s := range h.pending {
		if !s.done {
			s.home = nil
			s.writer.waiting--
			if byWriter[s.writer] == nil {
				writers = append(writers, s.writer)
			}
			byWriter[s.writer] = append(byWriter[s.writer], s)
		}
	}
	h.pending = nil
	for _, w := range a.writers {
		if w.home == h {
			w.opens = w.known + 1 // correct if nothing is in flight; else resolve sets it
		}
	}
	for _, w := range writers {
		w.moving, w.leaving = true, false
		w.held = append(byWriter[w], w.held...)
	}
	if len(writers) > 0 {
		l.opt.Logger.Debug("shard sealed, resolving", "shard", sh.GetId(), "writers", len(writers))
		l.wg.Go(func() {
			if a.resolve(sh, writers) {
				a.rehome(writers)
			}
		})
	}
}

// resolve asks a full replica of a sealed shard for the outcomes of the writers' held groups. It
// returns false if the log is closed first.
func (a *appending) resolve(sh *logpb.Shard, writers []*writer) bool {
	for _, w := range writers {
		a.mu.Lock()
		held := slices.Clone(w.held)
		a.mu.Unlock()
		outcomes, ok := a.outcomes(sh, w.name, held)
		if !ok {
			return false
		}
		a.mu.Lock()
		// Take w.held only now: groups that were added during the request were never sent to this
		// shard.
		rest := w.held[len(held):]
		w.held = nil
		w.opens = w.known + 1
		for i, o := range outcomes {
			s := held[i]
			switch o.GetKind() {
			case logpb.Outcome_TAKEN:
				a.finish(s, sharedlog.LSN(o.GetFirst()), nil)
				w.opens = w.known + 1
			case logpb.Outcome_VOID:
				a.finish(s, 0, sharedlog.Void(w.name, s.number))
			case logpb.Outcome_FORGOTTEN:
				w.known = max(w.known, s.number)
				w.opens = w.known + 1
				a.finish(s, 0, a.errForgotten(sh.GetId(), w.name, s.number))
			default:
				w.held = append(w.held, s)
			}
		}
		w.held = append(w.held, rest...)
		a.mu.Unlock()
	}
	return true
}

// errForgotten is the error for a group whose outcome no replica of its shard knows any more.
func (a *appending) errForgotten(shard uint32, writer string, number uint64) error {
	sh, forgotten := a.l.shards.find(shard)
	switch {
	case forgotten:
		return sharedlog.Errorf(sharedlog.KindUnknown, "group %d of writer %q may have been among the records of shard %d, which was sealed; all of them were trimmed, and the shard was forgotten, before this process asked", number, writer, shard)
	case sh.GetLost() > 0:
		return sharedlog.Errorf(sharedlog.KindUnknown, "group %d of writer %q may be among the %d records of shard %d that were given up (tailrace log rescue)", number, writer, sh.GetLost(), shard)
	}
	return sharedlog.TakenLongAgo(writer, number)
}

// outcomes asks the replicas of a sealed shard for the outcomes of a writer's groups, until a full
// replica answers. It returns false if the log is closed first.
func (a *appending) outcomes(sh *logpb.Shard, writer string, held []*sending) ([]*logpb.Outcome, bool) {
	req := &logpb.ResolveRequest{Shard: sh.GetId(), Writer: writer}
	for _, s := range held {
		req.Numbers = append(req.Numbers, s.number)
	}
	began, patience := time.Now(), resolvePatience
	for i := 0; ; i++ {
		newer, forgotten := a.l.shards.find(sh.GetId())
		if forgotten || allLost(newer) {
			// All its records were trimmed or given up, so which groups it had is not known. That
			// it never had any is known.
			kind := logpb.Outcome_FORGOTTEN
			if sh.GetSealed() && sh.GetLength() == 0 {
				kind = logpb.Outcome_NOT_THERE
			}
			outcomes := make([]*logpb.Outcome, len(held))
			for i := range outcomes {
				outcomes[i] = &logpb.Outcome{Kind: kind}
			}
			return outcomes, true
		}
		sh = newer
		// Ask the backups first: the primary is most likely gone.
		addr := sh.GetAddrs()[(i+1)%len(sh.GetAddrs())]
		reply := new(logpb.ResolveReply)
		ctx, cancel := context.WithTimeout(a.l.ctx, resolveTimeout)
		err := a.l.opt.Dialer.Call(ctx, addr, "storage/resolve", req, reply)
		cancel()
		if err == nil && len(reply.GetOutcomes()) == len(held) {
			return reply.GetOutcomes(), true
		}
		if a.l.ctx.Err() != nil {
			return nil, false
		}
		if time.Since(began) > patience {
			patience *= 2
			a.l.opt.Logger.Warn("appends wait: their shard was sealed, and no replica that has all of it says what became of them; start one of its nodes",
				"shard", sh.GetId(), "nodes", sh.GetAddrs(), "writer", writer, "appends", len(held), "tried", addr, "error", err)
		}
		sleep(a.l.ctx, 5*time.Millisecond)
	}
}

// rehome gives writers a new home shard, once a shard is open, and sends the groups that they hold.
func (a *appending) rehome(writers []*writer) {
	patience := resolvePatience
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		homes, changed := a.l.shards.homes()
		if len(homes) > 0 {
			a.mu.Lock()
			left := writers[:0]
			for _, w := range writers {
				w.home = a.choose(w.name)
				if w.home == nil {
					left = append(left, w) // the shard has just been sealed
					continue
				}
				held := w.held
				w.moving, w.held = false, nil
				for _, s := range held {
					if !s.done {
						a.route(s)
					}
				}
			}
			a.mu.Unlock()
			if writers = left; len(writers) == 0 {
				return
			}
		}
		select {
		case <-changed:
		case <-late.C:
			patience *= 2
			late.Reset(patience)
			a.l.opt.Logger.Warn("appends wait: no shard is open; a majority of the storage nodes that hold a shard must run and be active (tailrace status)", "writers", len(writers))
		case <-a.l.ctx.Done():
			return
		}
	}
}
