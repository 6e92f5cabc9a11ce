package server

import (
	"encoding/binary"
	"sync"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/body"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// outcome answers an append.
type outcome struct {
	seq   uint64
	first sharedlog.LSN
	err   error
}

// appendStream is a client's stream of groups for one shard. Messages:
//
//	there: { seq u64 LE, prefix body }
//	back:  { seq uvarint, first uvarint, and if first is 0: kind(1) n{detail} }
type appendStream struct {
	mu    sync.Mutex
	ready []outcome
	wake  chan struct{}
}

func (a *appendStream) answer(o outcome) {
	a.mu.Lock()
	a.ready = append(a.ready, o)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *appendStream) take(empty []outcome) []outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	ready := a.ready
	a.ready = empty
	return ready
}

// serveAppend takes groups from a client, if this process is the shard's primary.
func (n *Node) serveAppend(st transport.Stream) error {
	hello := new(logpb.AppendHello)
	if err := st.Recv(hello); err != nil {
		return err
	}
	r := n.replica(hello.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "shard %d is not known here yet", hello.GetShard())
	}
	if !r.primary {
		return sharedlog.Errorf(sharedlog.KindClosed, "this process is not the primary of shard %d", r.id)
	}
	a := &appendStream{wake: make(chan struct{}, 1)}
	ctx := st.Context()
	go func() {
		var done []outcome
		for {
			select {
			case <-a.wake:
			case <-ctx.Done():
				return
			}
			done = a.take(done[:0])
			if len(done) == 0 {
				continue
			}
			b := make([]byte, 0, 12*len(done))
			for i := range done {
				b = appendOutcome(b, &done[i])
			}
			clear(done)
			if st.Send(&transport.Raw{Parts: [][]byte{b}}) != nil {
				return
			}
		}
	}()
	for {
		var m transport.Raw
		if err := st.Recv(&m); err != nil {
			return nil
		}
		var groups []arrival
		for b := m.Bytes; len(b) > 0; {
			if len(b) < 8 {
				return sharedlog.Errorf(sharedlog.KindCorrupt, "a message of groups is cut short")
			}
			g := arrival{from: a, seq: binary.LittleEndian.Uint64(b), decoded: new(body.Decoded)}
			rest, err := g.wire.Take(b[8:])
			if err == nil {
				err = g.wire.Decode(g.decoded)
			}
			if err != nil {
				return sharedlog.Errorf(sharedlog.KindInvalid, "a group: %v", err)
			}
			b = rest
			groups = append(groups, g)
		}
		if !r.putGroups(groups) {
			return sharedlog.Errorf(sharedlog.KindClosed, "node %s", n.opt.Addr)
		}
	}
}

func appendOutcome(b []byte, o *outcome) []byte {
	b = binary.AppendUvarint(b, o.seq)
	if o.err == nil {
		return binary.AppendUvarint(b, uint64(o.first))
	}
	b = append(b, 0, byte(sharedlog.KindOf(o.err)))
	text := o.err.Error()
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}
