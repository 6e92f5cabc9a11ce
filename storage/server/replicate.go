package server

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/body"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// messageBytes is the approximate size of a message of groups.
const messageBytes = 1 << 20

// backlog holds the newest groups of a primary until they have been sent to its backups. Its size
// is bounded; a backup that needs older groups gets them from the segments.
type backlog struct {
	limit int64

	mu     sync.Mutex
	groups []waiting // valid from head on
	head   int
	bytes  int64
	more   chan struct{} // closed when a group is added
	closed bool
}

type waiting struct {
	position uint64
	wire     body.Wire
}

func (b *backlog) init(limit int64) { b.limit, b.more = limit, make(chan struct{}) }

// add appends a group; signal wakes the senders afterwards.
func (b *backlog) add(position uint64, w body.Wire) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.groups = append(b.groups, waiting{position, w})
	for b.bytes += int64(len(w.Bytes)); b.bytes > b.limit && b.head < len(b.groups)-1; b.head++ {
		b.bytes -= int64(len(b.groups[b.head].wire.Bytes))
		b.groups[b.head] = waiting{}
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
	for ; b.head < len(b.groups) && b.groups[b.head].position < position; b.head++ {
		b.bytes -= int64(len(b.groups[b.head].wire.Bytes))
		b.groups[b.head] = waiting{}
	}
}

// from appends groups from a position on to dst, about messageBytes of them. ok is false if the
// backlog does not hold them any more. If it does not hold them yet, from returns none; more is
// closed when there are more.
func (b *backlog) from(position uint64, dst []waiting) (groups []waiting, more <-chan struct{}, ok, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.groups[b.head:]
	if len(rest) == 0 {
		return dst, b.more, true, b.closed
	}
	if rest[0].position > position {
		return dst, nil, false, b.closed
	}
	lo, hi := 0, len(rest)
	for lo < hi {
		if mid := (lo + hi) / 2; rest[mid].position >= position {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	bytes := 0
	for ; lo < len(rest) && (bytes == 0 || bytes < messageBytes); lo++ {
		dst = append(dst, rest[lo])
		bytes += len(rest[lo].wire.Bytes)
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(contextOf(r.n.quit, ctx), cancel)()
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
	var groups []waiting
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
	if len(m.Bytes) != 8 {
		return 0, sharedlog.Errorf(sharedlog.KindCorrupt, "a length of %d bytes", len(m.Bytes))
	}
	held := binary.LittleEndian.Uint64(m.Bytes)
	b.replica.put(item{ack: &ack{b, stream, held}})
	return held, nil
}

// send sends groups in one message:
//
//	position u64 LE { prefix body }
//
// It returns the position after them.
func send(st transport.Stream, groups []waiting) (uint64, error) {
	head := make([]byte, 0, 8+len(groups)*body.PrefixSize)
	head = binary.LittleEndian.AppendUint64(head, groups[0].position)
	parts := make([][]byte, 0, 2*len(groups))
	from := 0
	for i := range groups {
		head = groups[i].wire.AppendPrefix(head)
		parts = append(parts, head[from:], groups[i].wire.Bytes)
		from = len(head)
	}
	last := &groups[len(groups)-1]
	return last.position + uint64(last.wire.Records), st.Send(&transport.Raw{Parts: parts})
}

// catchUp sends the groups that are on disk from a position on, and returns the position after
// them.
func (b *backup) catchUp(st transport.Stream, at uint64) (uint64, error) {
	var groups []waiting
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
		if position != at && len(groups) == 0 || len(groups) > 0 && position != groups[len(groups)-1].position+uint64(groups[len(groups)-1].wire.Records) {
			return sharedlog.Errorf(sharedlog.KindTrimmed, "shard %d, position %d", b.replica.id, at)
		}
		w := d.Wire()
		w.Bytes = slices.Clone(w.Bytes) // the scan reuses the buffer
		groups = append(groups, waiting{position, w})
		if bytes += len(w.Bytes); bytes >= messageBytes {
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
		_ = st.Send(&transport.Raw{Parts: [][]byte{binary.LittleEndian.AppendUint64(nil, length)}}) // if the stream has ended, Recv returns the error
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
		groups, err := decodeGroups(m.Bytes)
		if err != nil {
			return err
		}
		if !r.putGroups(groups) {
			return sharedlog.Errorf(sharedlog.KindClosed, "node %s", r.n.opt.Addr)
		}
	}
}

// decodeGroups decodes a message of send.
func decodeGroups(b []byte) ([]arrival, error) {
	if len(b) < 8 {
		return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "a message of %d bytes", len(b))
	}
	position := binary.LittleEndian.Uint64(b)
	b = b[8:]
	var groups []arrival
	for len(b) > 0 {
		a := arrival{position: position, decoded: new(body.Decoded)}
		var err error
		if b, err = a.wire.Take(b); err == nil {
			err = a.wire.Decode(a.decoded)
		}
		if err != nil {
			return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "a group at position %d: %v", position, err)
		}
		position += uint64(a.wire.Records)
		groups = append(groups, a)
	}
	return groups, nil
}
