package server

import (
	"sync"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// appendStream is a client's stream of groups for one shard.
type appendStream struct {
	st    transport.Stream
	mu    sync.Mutex
	ready []wire.Answer
	wake  chan struct{}

	// client is a random number of the sending process, and epoch numbers its streams to the shard.
	// 0: an older program, which sends neither.
	client, epoch uint64
	left          bool // a newer stream has replaced it; used in turns only
	name          string
	inflight      int64 // bytes of records admitted and not answered; used in turns only
}

// answer queues an outcome. flush sends the queued outcomes after the batch.
func (a *appendStream) answer(o wire.Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = append(a.ready, o)
}

// flush wakes the sending goroutine. A turn does not send itself: it would wait for a client that
// does not receive, and so would the whole shard.
func (a *appendStream) flush() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// send sends the queued outcomes.
func (a *appendStream) send() error {
	done := a.take(nil)
	if len(done) == 0 {
		return nil
	}
	b := make([]byte, 0, 12*len(done))
	for i := range done {
		b = done[i].Append(b)
	}
	return a.st.Send(&transport.Raw{Parts: [][]byte{b}})
}

// open makes a stream its client's newest on this shard. Groups that the earlier stream has
// received and not passed to the loop are dropped: the client sends them again here, and may have
// been told that they are certainly not in the log.
func (r *loop) open(a *appendStream) {
	if a.client == 0 {
		return
	}
	switch old := r.streams[a.client]; {
	case old == nil || old.epoch < a.epoch:
		if old != nil {
			old.left = true
		}
		r.streams[a.client] = a
	default:
		a.left = true
	}
}

// leave removes a stream that has ended.
func (r *loop) leave(a *appendStream) {
	a.left = true
	if r.streams[a.client] == a {
		delete(r.streams, a.client)
	}
}

func (a *appendStream) take(empty []wire.Answer) []wire.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	ready := a.ready
	a.ready = empty
	return ready
}

// serveAppend receives groups from a client, if this process is the shard's primary.
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
	a := &appendStream{st: st, wake: make(chan struct{}, 1), name: hello.GetClient(), client: hello.GetId(), epoch: hello.GetEpoch()}
	if !r.ask(func(l *loop) { l.open(a) }) {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s", n.opt.Addr)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-a.wake:
			case <-stop:
				return
			}
			if a.send() != nil {
				return // Recv returns the error, too
			}
		}
	}()
	defer func() { // nothing may be sent after the handler returns
		close(stop)
		<-ended
		r.put(item{call: func(l *loop) { l.leave(a) }})
	}()
	for {
		var m transport.Raw
		if err := st.Recv(&m); err != nil {
			return nil
		}
		var groups []arrival
		for b := m.Bytes; len(b) > 0; {
			var s wire.Submission
			var err error
			if b, err = s.Take(b); err != nil {
				return err
			}
			groups = append(groups, arrival{from: a, seq: s.Sequence, body: s.Body, decoded: s.Decoded})
		}
		if !r.putGroups(groups) {
			return sharedlog.Errorf(sharedlog.KindClosed, "node %s", n.opt.Addr)
		}
	}
}
