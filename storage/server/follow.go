package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// Metalog returns the state of the metalog as of the entry Index, as far as this node has followed
// it; also while the node receives entries again. Index 0 means that the node has received nothing
// yet. The caller must not change the messages.
func (n *Node) Metalog() *logpb.Snapshot {
	return n.table.Snapshot()
}

// aloneAfter is how long the node waits for a message of any sequencer before it logs a warning.
// The time doubles with each warning, since the cause can be an outage as well as a wrong address.
const aloneAfter = 2 * time.Second

// followSpread bounds how long a node that learns of another leader keeps following the sequencer
// that it follows.
const followSpread = 200 * time.Millisecond

// follow receives the metalog, from the leader of the sequencers if possible.
func (n *Node) follow(ctx context.Context) {
	received, patience := time.Now(), aloneAfter
	err := follow.Run(ctx, follow.Options{
		Dialer: n.opt.Dialer, Name: n.opt.Addr, Logger: n.opt.Logger, Spread: followSpread,
		Sequencers: n.table.Members().Addresses,
		Request:    n.request,
		Insist:     func() bool { return len(n.request().GetShards()) > 0 },
		Take: func(m *logpb.FollowReply) error {
			if err := n.take(m); err != nil {
				return err
			}
			n.followed.Do(func() { close(n.following) })
			return nil
		},
		Trouble: func(addr string, err error) {
			switch {
			case err == nil:
				received, patience = time.Now(), aloneAfter
			case time.Since(received) >= patience:
				patience *= 2
				n.opt.Logger.Warn("no sequencer responds; check their addresses (--sequencers), and that they are running",
					"node", n.opt.Addr, "sequencers", n.table.Members().Addresses(), "tried", addr, "error", err)
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		n.stop(err)
	}
}

// request returns a request for the part of the metalog that the node needs.
func (n *Node) request() *logpb.FollowRequest {
	after, fresh := n.resume()
	req := &logpb.FollowRequest{After: after, Snapshot: fresh, Node: n.opt.Addr, Stores: n.table.Members().Stores()}
	for _, r := range n.all() {
		if _, unfinished := r.followed(); unfinished {
			req.Shards = append(req.Shards, r.id)
		}
	}
	if index, tail, _ := n.table.At(); index == after {
		req.Tail = tail
	}
	return req
}

// untilQuit returns a context that ends when the node starts to stop, or when cancel is called. The
// caller must call cancel.
func (n *Node) untilQuit() (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		select {
		case <-n.quit:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}

// resume returns the index after which the node needs events: the one that its furthest-behind
// replica has reached. fresh reports that this node has no state yet.
func (n *Node) resume() (after uint64, fresh bool) {
	after, known := n.table.Resume()
	for _, r := range n.all() {
		if at, unfinished := r.followed(); unfinished {
			after = min(after, at)
		}
	}
	return after, !known
}

// take applies a message of the metalog. Only the goroutine of follow calls it.
func (n *Node) take(m *logpb.FollowReply) error {
	if s := m.GetSnapshot(); s != nil {
		return n.restart(s)
	}
	trims := false
	known, _, _ := n.table.At()
	for _, e := range m.GetEvents() {
		// Also for an event that the table already had before its replicas were created.
		if op := e.GetOpened(); op != nil && e.GetIndex() > known && slices.Contains(op.GetAddrs(), n.opt.Addr) && n.replica(op.GetId()) == nil {
			r, err := n.create(op, e.GetIndex())
			if err != nil {
				return err
			}
			n.add(r)
			n.share()
		}
		if !n.table.Apply(e) {
			continue
		}
		if pl := e.GetPlaced(); pl != nil {
			if err := n.place(pl); err != nil {
				return err
			}
		}
		if tr := e.GetTrim(); tr != nil {
			trims = true
			for _, r := range n.all() {
				r.hub.Trim(sharedlog.Tag(tr.GetTag()), sharedlog.LSN(tr.GetBefore()))
			}
			n.table.Announce()
		}
		if f := e.GetForgot(); f != nil { // cursors know the trims already
			n.table.Announce()
			n.forget(f.GetShards())
		}
	}
	n.table.Reached(m.GetIndex(), m.GetTail())
	_, _, opened := n.table.At()
	for _, r := range n.all() {
		r.advance(m.GetEvents(), m.GetIndex(), m.GetTail(), opened)
	}
	if trims {
		n.mayDelete()
	}
	return nil
}

// mayDelete makes keep look for segments in which nothing is left.
func (n *Node) mayDelete() {
	select {
	case n.trimmed <- struct{}{}:
	default:
	}
}

// restart applies a snapshot that replaces events which this node has missed. Its unfinished
// replicas become stale.
func (n *Node) restart(s *logpb.Snapshot) error {
	n.table.Init(s)
	for _, r := range n.all() {
		r.hub.TrimAll(n.table.Lowest)
	}
	n.table.Announce()
	n.mayDelete()
	var gone []uint32
	for _, r := range n.all() {
		if n.table.Forgotten(r.id) {
			gone = append(gone, r.id)
		}
	}
	n.forget(gone)
	for _, sh := range s.GetShards() {
		r := n.replica(sh.GetId())
		mine := slices.Contains(sh.GetAddrs(), n.opt.Addr)
		switch {
		case r == nil && mine && !sh.GetSealed() && sh.GetLength() == 0:
			// None of its records is ordered, so this node missed nothing that decides about its
			// groups: the replica starts with the current metadata. Otherwise a shard that was
			// opened just before would have no primary although the process is alive.
			r, err := n.create(sh, s.GetIndex())
			if err != nil {
				return err
			}
			n.add(r)
			n.share()
		case r == nil && mine:
			n.opt.Logger.Warn("replica missed the start of its shard; it will be copied once the shard is sealed", "node", n.opt.Addr, "shard", sh.GetId())
			r, err := n.stale(sh)
			if err != nil {
				return err
			}
			n.add(r)
		case r != nil:
			if at, unfinished := r.followed(); unfinished && at < s.GetIndex() {
				if r.primary && !sh.GetSealed() {
					return fmt.Errorf("the primary of shard %d has followed the metalog to %d only, and it continues with a snapshot at %d", r.id, at, s.GetIndex())
				}
				n.opt.Logger.Warn("replica fell behind the metalog; it will be copied once the shard is sealed", "node", n.opt.Addr, "shard", sh.GetId(), "at", at, "snapshot", s.GetIndex())
				r.lose(proto.CloneOf(sh))
			} else if sh.GetLost() > 0 {
				r.put(item{call: func(l *loop) {
					if l.core.Phase() == storage.PhaseFull {
						l.rescue(sh)
					}
				}})
			}
		}
	}
	_, _, opened := n.table.At()
	for _, r := range n.all() {
		r.advance(nil, s.GetIndex(), s.GetTail(), opened)
	}
	return n.deleteForeign()
}

// deleteForeign deletes segments of shards that are not placed on this node.
func (n *Node) deleteForeign() error {
	var ids []segment.ID
	for _, info := range n.store.Segments() {
		if n.replica(info.ID.Shard) == nil && info.State != segment.StateDamaged {
			ids = append(ids, info.ID)
		}
	}
	return n.store.Delete(ids...)
}

// place creates a replica of a sealed shard if the shard has been placed on this node.
func (n *Node) place(sh *logpb.Shard) error {
	if !slices.Contains(sh.GetAddrs(), n.opt.Addr) || n.replica(sh.GetId()) != nil {
		return nil
	}
	r, err := n.stale(sh)
	if err != nil {
		return err
	}
	n.add(r)
	return nil
}
