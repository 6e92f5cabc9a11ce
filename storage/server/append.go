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
	st    transport.Stream
	mu    sync.Mutex
	ready []outcome
	wake  chan struct{}

	sending sync.Mutex // before mu
}

// few is how many answers the turn sends itself. More are left to the stream's own
// goroutine: a client that does not take them must hold up nobody.
const few = 8

// answer notes an outcome; flush, behind the batch, sends what was noted.
func (a *appendStream) answer(o outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = append(a.ready, o)
}

// flush sends the outcomes noted, if they are few, or wakes who does.
func (a *appendStream) flush() {
	a.mu.Lock()
	n := len(a.ready)
	a.mu.Unlock()
	if n == 0 {
		return
	}
	if n <= few && a.sending.TryLock() {
		_ = a.send() // the stream has ended: its handler knows
		a.sending.Unlock()
		return
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// send sends what is ready; sending is held.
func (a *appendStream) send() error {
	done := a.take(nil)
	if len(done) == 0 || a.st == nil {
		return nil
	}
	b := make([]byte, 0, 12*len(done))
	for i := range done {
		b = appendOutcome(b, &done[i])
	}
	return a.st.Send(&transport.Raw{Parts: [][]byte{b}})
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
	a := &appendStream{st: st, wake: make(chan struct{}, 1)}
	defer func() { // nothing is sent behind the handler's end
		a.sending.Lock()
		a.st = nil
		a.sending.Unlock()
	}()
	ctx := st.Context()
	go func() {
		for {
			select {
			case <-a.wake:
			case <-ctx.Done():
				return
			}
			a.sending.Lock()
			err := a.send()
			a.sending.Unlock()
			if err != nil {
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
