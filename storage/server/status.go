package server

import (
	"time"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// serveLast finds the newest record of a tag in a shard, below an LSN.
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
	if lost := r.shown.LostFrom(); lost > 0 && below > lost {
		if n.table.TrimPoint(sharedlog.Tag(req.GetTag())) < sharedlog.LSN(r.description().GetSealedAt()) {
			return r.shown.ErrLost(lost) // its last record may be among the lost ones
		}
		below = lost
	}
	// The client decides whether the record was trimmed, since it asks all shards.
	e, sum, ok, err := r.hub.Last(st.Context(), sharedlog.Tag(req.GetTag()), below, func(sharedlog.Tag) sharedlog.LSN { return 0 })
	if err != nil {
		return err
	}
	reply := &logpb.LastReply{Trim: uint64(n.table.TrimPoint(sharedlog.Tag(req.GetTag()))), Found: ok, Lsn: uint64(e.LSN), Data: e.Data}
	if sum.Known() {
		reply.Checksum = proto.Uint32(sum.At(e.LSN))
	}
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

// servePing answers each message: the process is reachable.
func (n *Node) servePing(st transport.Stream) error {
	m := new(logpb.StatusRequest)
	if err := st.Recv(m); err != nil {
		return err
	}
	return st.Send(m)
}

// Status returns the state of the node.
func (n *Node) Status() *logpb.StorageStatus {
	m := &logpb.StorageStatus{
		Addr: n.opt.Addr, Incarnation: n.incarnation, DiskBytes: uint64(n.store.Disk()),
		Sessions: uint64(n.sessions.Open()), QueuedBytes: uint64(n.readers.Queued()), Version: n.opt.Version,
	}
	m.Applied, m.Tail, _ = n.table.At()
	free, reserve := n.room.Space()
	m.Readonly, m.FreeBytes, m.ReserveBytes = n.room.ReadOnly(), uint64(free), uint64(reserve)
	damaged := map[uint32]uint32{}
	for _, info := range n.store.Segments() {
		if info.State == segment.StateClosed && info.Damage != nil {
			damaged[info.ID.Shard]++
			m.Damaged++
		}
	}
	m.Mended, m.ScrubFound = n.mender.Mended(), n.scrubber.Found()
	if ended := n.scrubber.Ended(); ended > 0 {
		m.ScrubbedMs = uint64(max(1, time.Since(time.Unix(0, ended)).Milliseconds()))
	}
	for _, r := range n.all() {
		left, end := r.left()
		r.mu.Lock()
		role := r.phase.String()
		if r.primary && r.phase == storage.PhaseOpen {
			role = "primary"
		} else if r.phase == storage.PhaseOpen {
			role = "backup"
		}
		m.Replicas = append(m.Replicas, &logpb.ReplicaStatus{
			Shard: r.id, Role: role, Length: r.sizes.length, Ordered: r.sizes.ordered, Assigned: r.sizes.assigned,
			Full: r.phase == storage.PhaseFull, Sealed: r.shard.GetSealed(), Damaged: damaged[r.id], Remains: left, RemainsEnd: uint64(end),
		})
		m.Writers += uint64(r.writerCount)
		r.mu.Unlock()
		m.CachedBytes += uint64(r.hub.Cached())
	}
	return m
}
