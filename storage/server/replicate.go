package server

import (
	"errors"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// backlog holds the newest groups of a primary until they have been sent to its backups. Its size
// is bounded; a backup that needs older groups gets them from the segments.
type backlog struct {
	limit int64

	mu     sync.Mutex
	groups []wire.Placed // valid from head on
	head   int
	bytes  int64
	more   chan struct{} // closed when a group is added
	closed bool
}

func (b *backlog) init(limit int64) { b.limit, b.more = limit, make(chan struct{}) }

// add appends a group; signal wakes the senders afterwards.
func (b *backlog) add(position uint64, w wire.Body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.groups = append(b.groups, wire.Placed{Position: position, Body: w})
	for b.bytes += int64(len(w.Bytes)); b.bytes > b.limit && b.head < len(b.groups)-1; b.head++ {
		b.bytes -= int64(len(b.groups[b.head].Body.Bytes))
		b.groups[b.head] = wire.Placed{}
	}
	if b.head > 1024 && b.head > len(b.groups)/2 {
		n := copy(b.groups, b.groups[b.head:])
		clear(b.groups[n:])
		b.groups, b.head = b.groups[:n], 0
	}
}

func (b *backlog) signal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		close(b.more)
		b.more = make(chan struct{})
	}
}

func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.groups, b.head, b.bytes = nil, 0, 0
		close(b.more)
	}
}

// release drops the groups below a position, which all backups hold.
func (b *backlog) release(position uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ; b.head < len(b.groups) && b.groups[b.head].Position < position; b.head++ {
		b.bytes -= int64(len(b.groups[b.head].Body.Bytes))
		b.groups[b.head] = wire.Placed{}
	}
}

// from appends groups from a position on to dst, about wire.MessageBytes of them. ok is false if the
// backlog does not hold them any more. If it does not hold them yet, from returns none; more is
// closed when there are more.
func (b *backlog) from(position uint64, dst []wire.Placed) (groups []wire.Placed, more <-chan struct{}, ok, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.groups[b.head:]
	if len(rest) == 0 {
		return dst, b.more, true, b.closed
	}
	if rest[0].Position > position {
		return dst, nil, false, b.closed
	}
	lo, hi := 0, len(rest)
	for lo < hi {
		if mid := (lo + hi) / 2; rest[mid].Position >= position {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	bytes := 0
	for ; lo < len(rest) && (bytes == 0 || bytes < wire.MessageBytes); lo++ {
		dst = append(dst, rest[lo])
		bytes += len(rest[lo].Body.Bytes)
	}
	return dst, b.more, true, b.closed
}

// backup is one backup of a shard, as its primary sees it.
type backup struct {
	replica *replica
	index   int // number among the backups
	addr    string
	streams uint64 // number of streams so far; only run uses it
	acked   uint64 // the newest stream on which a length was received; protected by turnMu
}

var errLeft = errors.New("the shard is not open any more")

// run keeps a stream to the backup open until the shard is sealed.
func (b *backup) run() {
	for {
		err := b.stream()
		if errors.Is(err, errLeft) {
			return
		}
		b.replica.n.opt.Logger.Debug("replication stream ended", "shard", b.replica.id, "backup", b.addr, "error", err)
		select {
		case <-b.replica.n.quit:
			return
		case <-time.After(again(err)):
		}
	}
}

// again returns the delay after a stream ended with an error: it is longer if the backup's disk is
// full.
func again(err error) time.Duration {
	if sharedlog.KindOf(err) == sharedlog.KindFull {
		return 10 * 30 * time.Millisecond
	}
	return 30 * time.Millisecond
}

func (b *backup) stream() error {
	r := b.replica
	ctx, cancel := r.n.untilQuit()
	defer cancel()
	st, err := r.n.opt.Dialer.Open(ctx, b.addr, "storage/replicate")
	if err != nil {
		return err
	}
	if err := st.Hello(&logpb.ReplicateHello{Shard: r.id, Incarnation: r.incarnation()}); err != nil {
		return err
	}
	b.streams++
	number := b.streams
	at, err := b.receive(st, number)
	if err != nil {
		return err
	}
	go func() {
		defer cancel()
		for {
			if _, err := b.receive(st, number); err != nil {
				return
			}
		}
	}()
	var groups []wire.Placed
	for {
		var more <-chan struct{}
		var ok, closed bool
		groups, more, ok, closed = r.backlog.from(at, groups[:0])
		switch {
		case closed:
			return errLeft
		case !ok || len(groups) == 0 && at < r.onDisk():
			if at, err = b.catchUp(st, at); err != nil {
				return err
			}
			continue
		case len(groups) == 0:
			select {
			case <-more:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		if at, err = send(st, groups); err != nil {
			return err
		}
		clear(groups)
	}
}

// onDisk returns the length after the last batch.
func (r *replica) onDisk() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sizes.length
}

// receive receives the length that the backup holds, on the stream with the given number.
func (b *backup) receive(st transport.Stream, stream uint64) (uint64, error) {
	var m transport.Raw
	if err := st.Recv(&m); err != nil {
		return 0, err
	}
	held, err := wire.DecodeLength(m.Bytes)
	if err != nil {
		return 0, err
	}
	b.replica.put(item{ack: &ack{b, stream, held}})
	return held, nil
}

// send sends groups in one message and returns the position after them.
func send(st transport.Stream, groups []wire.Placed) (uint64, error) {
	last := &groups[len(groups)-1]
	return last.Position + uint64(last.Body.Records), st.Send(&transport.Raw{Parts: wire.ReplicateParts(groups)})
}

// catchUp sends the groups that are on disk from a position on, and returns the position after
// them.
func (b *backup) catchUp(st transport.Stream, at uint64) (uint64, error) {
	var groups []wire.Placed
	bytes := 0
	flush := func() (err error) {
		if len(groups) > 0 {
			at, err = send(st, groups)
			groups, bytes = groups[:0], 0
		}
		return err
	}
	end := b.replica.onDisk()
	err := b.replica.scan(at, end, func(position uint64, d *segment.Decoded) error {
		if position != at && len(groups) == 0 || len(groups) > 0 && position != groups[len(groups)-1].Position+uint64(groups[len(groups)-1].Body.Records) {
			return sharedlog.Errorf(sharedlog.KindTrimmed, "shard %d, position %d", b.replica.id, at)
		}
		w := d.Body()
		w.Bytes = slices.Clone(w.Bytes) // the scan reuses the buffer
		groups = append(groups, wire.Placed{Position: position, Body: w})
		if bytes += len(w.Bytes); bytes >= wire.MessageBytes {
			return flush()
		}
		return nil
	})
	if err != nil {
		return at, err
	}
	before := at
	if err := flush(); err != nil {
		return at, err
	}
	if at == before {
		return at, sharedlog.Errorf(sharedlog.KindTrimmed, "shard %d, position %d", b.replica.id, at)
	}
	return at, nil
}

// scan calls visit for the groups on disk between two positions. It skips closed segments that end
// below from. Any goroutine may call it.
func (r *replica) scan(from, to uint64, visit func(position uint64, d *segment.Decoded) error) error {
	for _, info := range r.n.store.Segments() {
		if end := info.Extent.To; info.ID.Shard != r.id || end > 0 && end <= from {
			continue
		}
		_, err := r.n.store.Scan(info.ID, func(_ segment.Location, d *segment.Decoded) error {
			if d.End() <= from {
				return nil
			}
			if d.Position >= to {
				return errEnough
			}
			return visit(d.Position, d)
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil && sharedlog.KindOf(err) != sharedlog.KindTrimmed {
			return err
		}
	}
	return nil
}

var errEnough = errors.New("enough")

// serveReplicate receives groups from a shard's primary.
func (n *Node) serveReplicate(st transport.Stream) error {
	hello := new(logpb.ReplicateHello)
	if err := st.Recv(hello); err != nil {
		return err
	}
	r := n.replica(hello.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "shard %d is not known here yet", hello.GetShard())
	}
	if r.incarnation() != hello.GetIncarnation() || r.primary {
		return sharedlog.Errorf(sharedlog.KindInvalid, "shard %d has another primary", hello.GetShard())
	}
	// A turn sends the length after each batch. It does not block on a primary that stands still: a
	// length is a few bytes, and there is at most one for each batch that the primary has sent.
	acknowledge := func(length uint64) {
		_ = st.Send(&transport.Raw{Parts: [][]byte{wire.EncodeLength(length)}}) // if the stream has ended, Recv returns the error
	}
	mine := new(int)
	if !r.ask(func() {
		r.heard, r.hears = acknowledge, mine
		acknowledge(r.core.Length())
	}) {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s", n.opt.Addr)
	}
	defer r.ask(func() { // nothing may be sent after the handler returns
		if r.hears == mine {
			r.heard = nil
		}
	})
	// The primary must send groups again that a full disk has turned away, even if no more groups
	// arrive: a stream without new groups would stay in Recv.
	stalled := r.nextStall()
	ended := make(chan error, 1)
	go func() { ended <- r.receive(st) }()
	select {
	case err := <-ended:
		return err
	case <-stalled:
		return sharedlog.Errorf(sharedlog.KindFull, "node %s", n.opt.Addr)
	}
}

// receive receives groups on a stream of the primary until the stream ends.
func (r *replica) receive(st transport.Stream) error {
	for {
		var m transport.Raw
		if err := st.Recv(&m); err != nil {
			return nil
		}
		r.mu.Lock()
		open := r.phase == storage.PhaseOpen && !r.ended
		r.mu.Unlock()
		if !open {
			return sharedlog.Errorf(sharedlog.KindSealed, "shard %d", r.id)
		}
		var groups []arrival
		if err := wire.DecodeReplicate(m.Bytes, func(p wire.Placed, d *wire.Decoded) {
			groups = append(groups, arrival{position: p.Position, body: p.Body, decoded: d})
		}); err != nil {
			return err
		}
		if !r.putGroups(groups) {
			return sharedlog.Errorf(sharedlog.KindClosed, "node %s", r.n.opt.Addr)
		}
	}
}
