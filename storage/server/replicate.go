package server

import (
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
)

// backup is one backup of a shard, as its primary sees it.
type backup struct {
	index int    // number among the backups
	acked uint64 // the newest stream on which a length was received; used in turns only
}

// onDisk returns the length after the last batch.
func (r *replica) onDisk() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sizes.length
}

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
	if !r.ask(func(l *loop) {
		l.acknowledge, l.primaryStream = acknowledge, mine
		acknowledge(l.core.Length())
	}) {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s", n.opt.Addr)
	}
	defer r.ask(func(l *loop) { // nothing may be sent after the handler returns
		if l.primaryStream == mine {
			l.acknowledge = nil
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
