package server

import (
	"context"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// peer sends raft's messages to another sequencer, on a best-effort basis: a message that does not
// fit the queue, or is sent on a broken stream, is lost, and raft sends it again.
type peer struct {
	id     uint64
	addr   string
	server *Server
	queue  chan *raftpb.Message
	quit   chan struct{} // closed when it is removed or its address changes
	said   string        // why it refused the last stream
}

// peer returns the peer with an ID, nil if its address is unknown. The caller holds turnMu.
func (s *Server) peer(id uint64) *peer {
	p := s.peers[id]
	if p != nil || id == s.opt.ID {
		return p
	}
	q, _ := s.replica.State().Sequencer(id)
	addr := s.address(id)
	if addr == "" || q.State == sequencer.SequencerRemoved {
		return nil
	}
	p = &peer{id: id, addr: addr, server: s, queue: make(chan *raftpb.Message, 1024), quit: make(chan struct{})}
	s.peers[id] = p
	s.peerWG.Go(p.run)
	return p
}

// send queues raft's messages after a Process. The caller holds turnMu.
func (s *Server) send(messages []*raftpb.Message) {
	for _, m := range messages {
		p := s.peer(m.GetTo())
		if p == nil {
			continue
		}
		select {
		case p.queue <- m:
		default:
			s.lost(m)
		}
	}
}

// lost tells raft that a message was not sent. The caller holds turnMu.
func (s *Server) lost(m *raftpb.Message) {
	s.replica.Unreachable(m.GetTo())
	if m.GetType() == raftpb.MsgSnap {
		s.replica.SnapshotSent(m.GetTo(), false)
	}
}

func (p *peer) run() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		p.stream(ctx)
		cancel()
		select {
		case <-p.quit:
			return
		case <-p.server.quit:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// hello returns the first message of a stream.
func (p *peer) hello() (h *logpb.SequencerHello, err error) {
	s := p.server
	h = &logpb.SequencerHello{From: s.opt.ID, FromStore: s.identity.store, To: p.id, Addr: s.opt.Addr, Level: sequencer.Level}
	err = s.ask(func() {
		q, _ := s.replica.State().Sequencer(p.id)
		h.ToStore = q.StoreID
	})
	return h, err
}

// stream sends until the stream breaks.
func (p *peer) stream(ctx context.Context) {
	hello, err := p.hello()
	if err != nil {
		return
	}
	st, err := p.server.opt.Dialer.Open(ctx, p.addr, "sequencer/raft")
	if err != nil {
		p.drop()
		return
	}
	if st.Send(&logpb.RaftMessages{Hello: hello}) != nil {
		p.drop()
		return
	}
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		for {
			r := new(logpb.RaftRefusal)
			if st.Recv(r) != nil {
				return
			}
			p.refused(r)
		}
	}()
	for {
		var m *raftpb.Message
		select {
		case m = <-p.queue:
		case <-broken:
			p.drop()
			return
		case <-p.quit:
			return
		case <-p.server.quit:
			return
		}
		batch := []*raftpb.Message{m}
	more:
		for len(batch) < 64 {
			select {
			case m := <-p.queue:
				batch = append(batch, m)
			default:
				break more
			}
		}
		msg := new(logpb.RaftMessages)
		for _, m := range batch {
			b, err := proto.Marshal(m)
			if err != nil {
				continue // a bug in raft
			}
			msg.Messages = append(msg.Messages, b)
		}
		err := st.Send(msg)
		_ = p.server.do(func() {
			for _, m := range batch {
				if err != nil {
					p.server.lost(m)
				} else if m.GetType() == raftpb.MsgSnap {
					p.server.replica.SnapshotSent(m.GetTo(), true)
				}
			}
		})
		if err != nil {
			return
		}
	}
}

// refused handles the peer's refusal of a stream.
func (p *peer) refused(r *logpb.RaftRefusal) {
	if r.GetFinal() {
		p.server.fail(sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d says: %s", p.id, r.GetWhy()))
		return
	}
	if r.GetWhy() != p.said {
		p.said = r.GetWhy()
		p.server.opt.Logger.Warn("another sequencer refuses this one's messages", "sequencer", p.server.opt.ID, "peer", p.id, "address", p.addr, "why", p.said)
	}
}

// drop empties the queue of a peer that cannot be reached.
func (p *peer) drop() {
	for {
		select {
		case m := <-p.queue:
			_ = p.server.do(func() { p.server.lost(m) })
		default:
			return
		}
	}
}

// serveRaft receives raft's messages from another sequencer.
func (s *Server) serveRaft(st transport.Stream) error {
	var from *logpb.SequencerHello
	var removed atomic.Bool // the sender, since the stream was admitted
	for {
		batch := new(logpb.RaftMessages)
		if err := st.Recv(batch); err != nil {
			return nil
		}
		messages := make([]*raftpb.Message, 0, len(batch.GetMessages()))
		for _, b := range batch.GetMessages() {
			m := new(raftpb.Message)
			if err := proto.Unmarshal(b, m); err != nil {
				return err
			}
			messages = append(messages, m)
		}
		if from == nil || removed.Load() {
			if from == nil {
				from = batch.GetHello()
			}
			if from == nil { // a program of level 1: its messages contain the sender
				if len(messages) == 0 {
					continue
				}
				from = &logpb.SequencerHello{From: messages[0].GetFrom(), To: messages[0].GetTo()}
			}
			if final, err := s.admit(from); err != nil {
				_ = st.Send(&logpb.RaftRefusal{Why: err.Error(), Final: final})
				return err
			}
		}
		if err := s.do(func() { removed.Store(!s.step(from, messages)) }); err != nil {
			return err
		}
	}
}

// admit decides whether a stream is admitted, in a turn, and waits for the decision.
func (s *Server) admit(h *logpb.SequencerHello) (final bool, err error) {
	asked := s.ask(func() {
		final, err = s.replica.State().Admit(s.opt.ID, s.identity.store,
			sequencer.Hello{From: h.GetFrom(), FromStore: h.GetFromStore(), To: h.GetTo(), ToStore: h.GetToStore()})
		if err == nil {
			s.known[h.GetFrom()] = h
		}
	})
	if asked != nil {
		return false, asked
	}
	return final, err
}

// step passes messages to raft. It returns false if their sender has been removed. The caller holds
// turnMu.
func (s *Server) step(from *logpb.SequencerHello, messages []*raftpb.Message) bool {
	if q, known := s.replica.State().Sequencer(from.GetFrom()); known && q.State == sequencer.SequencerRemoved {
		return false
	}
	s.lastMessage[from.GetFrom()] = s.now()
	for _, m := range messages {
		if m.GetFrom() == from.GetFrom() && m.GetTo() == s.opt.ID {
			_ = s.replica.Step(m) // an error: the message is outdated or misdirected
		}
	}
	return true
}
