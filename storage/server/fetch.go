package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/body"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// serveFetch sends the ordered groups of a shard from a position on, with their
// fates, as far as this replica has them:
//
//	{ position u64, first u64, effect u8, prefix body }     LE
func (n *Node) serveFetch(st transport.Stream) error {
	req := new(logpb.FetchRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	r := n.replica(req.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s has no replica of shard %d", n.opt.Addr, req.GetShard())
	}
	r.mu.Lock()
	upto, ready := min(req.GetTo(), r.sizes.assigned), r.phase != storage.PhaseStale
	if r.phase == storage.PhaseFull {
		upto = req.GetTo()
	}
	r.mu.Unlock()
	if !ready {
		return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s is being copied itself", r.id, n.opt.Addr)
	}
	var b []byte
	for _, info := range n.store.Segments() {
		if info.ID.Shard != r.id {
			continue
		}
		groups, err := r.index.Groups(info.ID)
		if err != nil {
			continue // it went away, or holds nothing ordered
		}
		for i := range groups {
			g := &groups[i]
			if g.Position < req.GetFrom() || g.Position >= upto {
				continue
			}
			if b, err = n.appendFetched(b, info.ID, g); err != nil {
				return err
			}
			if len(b) >= messageBytes {
				if err := st.Send(&transport.Raw{Parts: [][]byte{b}}); err != nil {
					return nil
				}
				b = nil
			}
		}
	}
	if len(b) > 0 {
		return st.Send(&transport.Raw{Parts: [][]byte{b}})
	}
	return nil
}

func (n *Node) appendFetched(b []byte, id segment.ID, g *tagindex.Group) ([]byte, error) {
	var d segment.Decoded
	if _, err := n.store.Read(segment.Location{ID: id, Offset: g.Offset, Size: g.Size}, nil, &d); err != nil {
		return nil, err
	}
	var w body.Wire
	w.Encode(&d.Group, d.Opens)
	b = binary.LittleEndian.AppendUint64(b, g.Position)
	b = binary.LittleEndian.AppendUint64(b, uint64(g.First))
	effect := byte(0)
	if g.Effect {
		effect = 1
	}
	b = append(b, effect)
	b = w.AppendPrefix(b)
	return append(b, w.Bytes...), nil
}

// fetchMissing asks the others for the end of a sealed shard that this replica does
// not hold; of the loop.
func (r *replica) fetchMissing() {
	if r.copying {
		return
	}
	r.copying = true
	r.n.wg.Go(func() { r.fetch(false) })
}

// copyWhole copies a sealed shard; of the turn.
func (r *replica) copyWhole() {
	r.copying = true
	r.n.wg.Go(func() { r.fetch(true) })
}

// fetch gets groups from one peer after the other until there are all. Whole: with
// their fates, from one that is full; else this replica's core knows them.
func (r *replica) fetch(whole bool) {
	begun := false
	for i := 0; ; i++ {
		r.mu.Lock()
		sh, at, ended := r.shard, r.sizes.length, r.ended
		r.mu.Unlock()
		if ended {
			return // another replica has taken its place
		}
		if whole {
			r.ask(func() { at = r.copied })
		}
		if at >= sh.GetLength() {
			break
		}
		addr := sh.GetAddrs()[i%len(sh.GetAddrs())]
		if addr != r.n.opt.Addr && (!whole || r.isFull(addr)) {
			if whole && !begun {
				var err error
				if !r.ask(func() { err = r.beginCopy() }) {
					return
				}
				if err != nil && sharedlog.KindOf(err) != sharedlog.KindFull {
					r.n.stop(fmt.Errorf("copy of shard %d: %w", r.id, err))
					return
				}
				begun = err == nil
			}
			var complete bool
			var err error
			if begun || !whole { // else the disk was full
				complete, err = r.fetchFrom(addr, at, sh.GetLength(), whole)
			}
			if complete && whole {
				break
			}
			if err != nil {
				r.n.opt.Logger.Debug("fetch", "node", r.n.opt.Addr, "shard", r.id, "from", addr, "at", at, "error", err)
			}
		}
		select {
		case <-r.n.quit:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	r.ask(func() {
		r.copying = false
		if whole {
			r.core.Copied(r.shard.GetLength())
			r.known = true
			if err := r.whole(); err != nil {
				r.n.stop(fmt.Errorf("copy of shard %d: %w", r.id, err))
			}
		}
	})
}

// isFull asks a peer whether it holds all of the shard: holes in what it sends are then
// where everything was trimmed.
func (r *replica) isFull(addr string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var status logpb.StorageStatus
	if r.n.opt.Dialer.Call(ctx, addr, "storage/status", new(logpb.StatusRequest), &status) != nil {
		return false
	}
	return slices.ContainsFunc(status.GetReplicas(), func(s *logpb.ReplicaStatus) bool { return s.GetShard() == r.id && s.GetFull() })
}

// fetchFrom gets what one peer has. complete: it was full, and all has come.
func (r *replica) fetchFrom(addr string, from, to uint64, whole bool) (complete bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(contextOf(r.n.quit, ctx), cancel)()
	st, err := r.n.opt.Dialer.Open(ctx, addr, "storage/fetch")
	if err != nil {
		return false, err
	}
	if err := st.Hello(&logpb.FetchRequest{Shard: r.id, From: from, To: to}); err != nil {
		return false, err
	}
	if err := st.CloseSend(); err != nil {
		return false, err
	}
	stalls := r.stalled()
	for {
		var m transport.Raw
		err := st.Recv(&m)
		if err != nil {
			if !isEOF(err) {
				return false, err
			}
			return true, nil
		}
		groups, err := decodeFetched(m.Bytes, whole)
		if err != nil {
			return false, err
		}
		if !r.putGroups(groups) {
			return false, sharedlog.Errorf(sharedlog.KindClosed, "node %s", r.n.opt.Addr)
		}
		// Written before more is asked for.
		if !r.ask(func() {}) {
			return false, sharedlog.Errorf(sharedlog.KindClosed, "node %s", r.n.opt.Addr)
		}
		if r.stalled() != stalls {
			// The disk was full: what comes behind would be written behind a hole.
			return false, sharedlog.Errorf(sharedlog.KindFull, "node %s", r.n.opt.Addr)
		}
	}
}

func decodeFetched(b []byte, whole bool) ([]arrival, error) {
	var groups []arrival
	for len(b) > 0 {
		if len(b) < 17 {
			return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "a message of fetched groups is cut short")
		}
		a := arrival{position: binary.LittleEndian.Uint64(b), decoded: new(body.Decoded)}
		first, effect := sharedlog.LSN(binary.LittleEndian.Uint64(b[8:])), b[16] == 1
		rest, err := a.wire.Take(b[17:])
		if err == nil {
			err = a.wire.Decode(a.decoded)
		}
		if err != nil {
			return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "a fetched group at position %d: %v", a.position, err)
		}
		b = rest
		if whole {
			g := &a.decoded.Group
			a.fate = &storage.Fate{First: first, Effect: effect, Head: storage.Head{
				Position: a.position, Records: uint64(len(g.Records)), Writer: g.Writer, Number: g.Number,
			}}
		}
		groups = append(groups, a)
	}
	return groups, nil
}

// serveResolve tells what became of numbers of a writer in a sealed shard (promise
// 6), if this replica knows: it is full.
func (n *Node) serveResolve(st transport.Stream) error {
	req := new(logpb.ResolveRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	r := n.replica(req.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s has no replica of shard %d", n.opt.Addr, req.GetShard())
	}
	reply := new(logpb.ResolveReply)
	var err error
	if !r.ask(func() {
		if r.core.Phase() != storage.PhaseFull {
			err = sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s is not full yet", r.id, n.opt.Addr)
			return
		}
		if err = r.learn(); err != nil {
			return
		}
		for _, number := range req.GetNumbers() {
			v := r.core.Look(req.GetWriter(), number)
			o := &logpb.Outcome{}
			switch v.Decision {
			case storage.Taken:
				o.Kind, o.First = logpb.Outcome_TAKEN, uint64(v.First)
			case storage.Void:
				o.Kind = logpb.Outcome_VOID
			case storage.Forgotten:
				o.Kind = logpb.Outcome_FORGOTTEN
			}
			reply.Outcomes = append(reply.Outcomes, o)
		}
	}) {
		err = sharedlog.Errorf(sharedlog.KindClosed, "node %s", n.opt.Addr)
	}
	if err != nil {
		return err
	}
	return st.Send(reply)
}

// learn reads the table of writers from the segments, after a restart; of the loop.
func (r *replica) learn() error {
	if r.known {
		return nil
	}
	for _, info := range r.n.store.Segments() {
		if info.ID.Shard != r.id {
			continue
		}
		groups, err := r.index.Groups(info.ID)
		if err != nil {
			return err
		}
		i := 0
		_, err = r.n.store.Scan(info.ID, func(_ segment.Location, d *segment.Decoded) error {
			for i < len(groups) && groups[i].Position < d.Position {
				i++
			}
			if i < len(groups) && groups[i].Position == d.Position {
				r.core.Learn(&storage.Fate{First: groups[i].First, Effect: groups[i].Effect, Head: storage.Head{Writer: d.Group.Writer, Number: d.Group.Number}})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	r.known = true
	return nil
}

// serveLast finds the newest record of a tag in a shard.
func (n *Node) serveLast(st transport.Stream) error {
	req := new(logpb.LastRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	r := n.replica(req.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s has no replica of shard %d", n.opt.Addr, req.GetShard())
	}
	moved := make(chan struct{}, 1)
	r.hub.Watch(moved)
	defer r.hub.Unwatch(moved)
	below := sharedlog.LSN(req.GetBelow())
	for r.hub.Tail() < below {
		if err := r.hub.Err(); err != nil {
			return err
		}
		select {
		case <-moved:
		case <-st.Context().Done():
			return st.Context().Err()
		}
	}
	// Whether trimming took it is for the client to say, who asks all shards.
	e, ok, err := r.hub.Last(sharedlog.Tag(req.GetTag()), below, func(sharedlog.Tag) sharedlog.LSN { return 0 })
	if err != nil {
		return err
	}
	reply := &logpb.LastReply{Trim: uint64(n.table.trimPoint(sharedlog.Tag(req.GetTag()))), Found: ok, Lsn: uint64(e.LSN), Data: e.Data}
	for _, t := range e.Tags {
		reply.Tags = append(reply.Tags, string(t))
	}
	return st.Send(reply)
}

func (n *Node) serveStatus(st transport.Stream) error {
	if err := st.Recv(new(logpb.StatusRequest)); err != nil {
		return err
	}
	return st.Send(n.Status())
}

// servePing says that this process can be reached.
func (n *Node) servePing(st transport.Stream) error {
	m := new(logpb.StatusRequest)
	if err := st.Recv(m); err != nil {
		return err
	}
	return st.Send(m)
}

// Status says how the node is.
func (n *Node) Status() *logpb.StorageStatus {
	m := &logpb.StorageStatus{
		Addr: n.opt.Addr, Incarnation: n.incarnation, DiskBytes: uint64(n.store.Disk()),
		Sessions: uint64(n.sessions.Load()), QueuedBytes: uint64(n.readers.Queued()), Version: n.opt.Version,
	}
	m.Applied, m.Tail, _ = n.table.at()
	for _, r := range n.all() {
		r.mu.Lock()
		role := r.phase.String()
		if r.primary && r.phase == storage.PhaseOpen {
			role = "primary"
		} else if r.phase == storage.PhaseOpen {
			role = "backup"
		}
		m.Replicas = append(m.Replicas, &logpb.ReplicaStatus{
			Shard: r.id, Role: role, Length: r.sizes.length, Ordered: r.sizes.ordered, Assigned: r.sizes.assigned,
			Full: r.phase == storage.PhaseFull, Sealed: r.shard.GetSealed(),
		})
		r.mu.Unlock()
		m.CachedBytes += uint64(r.hub.Cached())
	}
	return m
}
