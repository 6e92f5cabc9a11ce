package server

import (
	"context"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// peer sends raft's messages to another sequencer, as far as it can: what does not
// fit the queue, or meets a broken stream, is lost, and raft sends it again.
type peer struct {
	id     uint64
	addr   string
	server *Server
	queue  chan *raftpb.Message
}

// send queues raft's messages; of the turn, behind Process.
func (s *Server) send(messages []*raftpb.Message) {
	for _, m := range messages {
		p := s.peers[m.GetTo()]
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

// lost tells raft about a message that did not go out; of the loop.
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
		case <-p.server.quit:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stream sends until the stream breaks.
func (p *peer) stream(ctx context.Context) {
	st, err := p.server.opt.Dialer.Open(ctx, p.addr, "sequencer/raft")
	if err != nil {
		p.drop()
		return
	}
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		_ = st.Recv(new(logpb.Leader)) // nothing is ever sent: it is the end
	}()
	for {
		var m *raftpb.Message
		select {
		case m = <-p.queue:
		case <-broken:
			p.drop()
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

func (s *Server) serveRaft(st transport.Stream) error {
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
		if err := s.do(func() {
			for _, m := range messages {
				_ = s.replica.Step(m) // an error: the message is too old, or not for it
			}
		}); err != nil {
			return err
		}
	}
}
