package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/session"
	"tailrace.dev/tailrace/storage/server/table"
	"tailrace.dev/tailrace/storage/tagindex"
)

// recover creates the replicas that the disk has checkpoints of. It deletes a file only if it is
// certain that no record with effect was ever in it.
func (n *Node) recover() error {
	n.logDamage()
	var snap logpb.Snapshot
	if ok, err := n.readMessage(tableName, &snap); err != nil {
		return err
	} else if ok {
		n.table.Init(&snap)
		n.table.Announce() // there are no cursors yet
	} else {
		n.table.InitEmpty()
	}
	names, err := n.opt.FS.List(n.opt.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		var id uint32
		if _, err := fmt.Sscanf(name, "writers-%08d", &id); err == nil && n.table.Forgotten(id) {
			if err := n.removeShard(id, nil); err != nil {
				return err
			}
		}
		if _, err := fmt.Sscanf(name, "order-%08d", &id); err != nil || name != orderName(id) {
			continue
		}
		if n.table.Forgotten(id) {
			if err := n.removeShard(id, nil); err != nil {
				return err
			}
			continue
		}
		var m logpb.ReplicaCheckpoint
		ok, err := n.readMessage(name, &m)
		if err != nil {
			return err
		}
		if !ok || m.GetShard().GetId() != id || len(m.GetShard().GetAddrs()) == 0 {
			continue // becomes stale, below
		}
		r, err := n.restore(&m)
		if err != nil {
			return fmt.Errorf("shard %d: %w", id, err)
		}
		n.replicas[id] = r
	}
	for _, sh := range snap.GetShards() {
		if slices.Contains(sh.GetAddrs(), n.opt.Addr) && n.replicas[sh.GetId()] == nil {
			if n.replicas[sh.GetId()], err = n.stale(sh); err != nil {
				return err
			}
		}
	}
	if _, known := n.table.Resume(); !known {
		return nil // the metalog will tell which segments are foreign
	}
	// Segments of shards that the node was about to join, and has acknowledged nothing of.
	var begun []segment.ID
	for _, info := range n.store.Segments() {
		if n.replicas[info.ID.Shard] == nil && info.State == segment.StateOpen {
			begun = append(begun, info.ID)
		}
	}
	return n.store.Delete(begun...)
}

// logDamage logs what was wrong with files when they were opened.
func (n *Node) logDamage() {
	for _, s := range n.store.Segments() {
		if s.Repaired != "" {
			n.opt.Logger.Warn("a segment's file was damaged and has been repaired without loss", "node", n.opt.Addr, "segment", s.ID, "was", s.Repaired)
		}
		if s.Damage != nil {
			n.opt.Logger.Error("a segment is damaged", "node", n.opt.Addr, "error", s.Damage)
		}
	}
}

// restore restores a replica from its checkpoint and its segments. A replica that has lost data
// that it knew to be ordered becomes stale.
func (n *Node) restore(m *logpb.ReplicaCheckpoint) (*replica, error) {
	sh := m.GetShard()
	if newer := n.table.Shard(sh.GetId()); newer != nil && newer.GetSealed() {
		if !m.GetFull() && newer.GetLost() != sh.GetLost() { // the rescue follows as an event
			newer = proto.CloneOf(newer)
			newer.Lost = sh.GetLost()
		}
		sh = newer
	}
	if m.GetFull() { // its segments are all closed, whatever their files look like
		for _, info := range n.store.Segments() {
			if info.ID.Shard == sh.GetId() && info.State != segment.StateClosed {
				if err := n.store.Adopt(info.ID); err != nil {
					return nil, err
				}
			}
		}
	}
	var closed, open []segment.Info
	for _, info := range n.store.Segments() {
		switch {
		case info.ID.Shard != sh.GetId():
		case info.State == segment.StateClosed:
			closed = append(closed, info)
		default:
			open = append(open, info)
		}
	}
	r, err := n.newReplica(sh, closed)
	if err != nil {
		return nil, err
	}
	r.seen = m.GetIndex()
	l := &r.guarded // nothing else uses the replica yet
	if m.GetFull() {
		core := storage.NewReplica(nil, false, 0)
		core.Lose()
		core.Copied(table.Kept(sh))
		l.setCore(core)
		r.phase = storage.PhaseFull
		l.setLost()
		r.hub.Publish(nil, session.Everything)
		r.hub.Forget()
		n.leader.Holds(r.id)
		return r, nil
	}
	order, err := storage.RestoreCheckpoint(m.GetOrder())
	if err != nil {
		return nil, err
	}
	l.setCore(storage.ResumeReplica(order))
	f := &found{r: l, saved: m.GetOutcomes(), last: sharedlog.LSN(sh.GetOpened())}
	lost := ""
	if len(closed) > 0 {
		last := closed[len(closed)-1]
		if f.closed, f.end, f.last = last.Extent.To, last.Extent.To, last.Extent.End; f.last == 0 {
			lost = "which records its last closed segment holds"
		}
	}
	f.end = max(f.end, closedTo(m, order))
	covered, err := l.restoreWriters(closed)
	if err != nil {
		return nil, err
	}
	for _, info := range closed {
		err := l.holdClosed(info)
		if sharedlog.KindOf(err) == sharedlog.KindCorrupt {
			lost = "the outcomes of what a damaged segment holds"
			break
		}
		if err != nil {
			return nil, err
		}
	}
	for i, info := range open {
		err := f.segment(info)
		if errors.Is(err, errGap) {
			f.without = append(f.without, open[i+1:]...)
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if f.end < order.Assigned() {
		lost = fmt.Sprintf("records %d to %d", f.end, order.Assigned())
	}
	if lost != "" {
		n.opt.Logger.Warn("replica lost ordered records; it will be copied once the shard is sealed",
			"node", n.opt.Addr, "shard", r.id, "lost", lost)
		fresh, err := n.stale(sh)
		if err == nil {
			fresh.remains = r.remaining()
		}
		return fresh, err
	}
	if l.known {
		missed, err := r.disk.Gap(covered, order.Assigned())
		if err != nil {
			return nil, err
		}
		l.core.Writers().Missed(missed)
	}
	if err := n.discard(f.without); err != nil {
		return nil, err
	}
	// What the replica reports as held must be as durable as what it receives from now on.
	for _, e := range l.full {
		if err := n.store.Sync(e.id); err != nil {
			return nil, err
		}
	}
	r.hub.Publish(nil, f.last)
	r.primary = false // a shard ends with its primary process
	r.sizes, r.phase = sizes{l.core.Length(), order.Ordered(), order.Assigned()}, l.core.Phase()
	l.recorded = true
	if err := l.start(); err != nil && sharedlog.KindOf(err) != sharedlog.KindFull {
		return nil, err
	}
	return r, nil
}

// discard deletes segments that are not closed and do not continue what comes before them. A
// damaged file is only set aside.
func (n *Node) discard(without []segment.Info) error {
	var ids []segment.ID
	for _, info := range without {
		if info.State != segment.StateDamaged {
			ids = append(ids, info.ID)
			continue
		}
		name, err := n.store.SetAside(info.ID)
		if err != nil {
			return err
		}
		n.opt.Logger.Warn("a damaged file was set aside; its records are copied from other nodes", "node", n.opt.Addr, "file", name)
	}
	return n.store.Delete(ids...)
}

// restoreWriters restores the table of writers from the file and from the segments that were closed
// after the file was written. It returns the position below which the file covers all groups.
// Without a file the table is built when a client asks for it.
func (r *loop) restoreWriters(closed []segment.Info) (covered uint64, _ error) {
	w, covered, err := r.readWriters()
	if err != nil || covered == 0 && len(closed) > 0 {
		return 0, err
	}
	r.core.Writers().Merge(w)
	assigned := r.core.Order().Assigned()
	for _, info := range closed {
		if to := info.Extent.To; to > 0 && to <= covered || info.Extent.From >= assigned {
			continue
		}
		outcomes, err := r.disk.Outcomes(info, "")
		if sharedlog.KindOf(err) == sharedlog.KindCorrupt {
			return covered, nil // a client that asks gets the error
		}
		if err != nil {
			return 0, err
		}
		for i := range outcomes {
			if outcomes[i].Position < assigned { // the order supplies the others
				r.core.Learn(&outcomes[i])
			}
		}
	}
	r.known = true
	return covered, nil
}

// closedTo returns the position up to which segments were closed when a checkpoint was written.
// Nothing was needed of segments that have been deleted since (deleteTrimmed).
func closedTo(m *logpb.ReplicaCheckpoint, order *storage.Order) uint64 {
	if f := m.GetOutcomes(); len(f) > 0 {
		return f[0].GetFrom()
	}
	return order.Assigned()
}

// holdClosed passes to the order the groups of a closed segment that have no outcome in the
// checkpoint: the segment was closed after it.
func (r *loop) holdClosed(info segment.Info) error {
	if to := info.Extent.To; to > 0 && to <= r.core.Order().Assigned() {
		return nil
	}
	_, err := r.n.store.Scan(info.ID, func(loc segment.Location, d *segment.Decoded) error {
		if d.Position >= r.core.Order().Assigned() {
			if d.Position > r.core.Length() { // the segment was repaired, and the trimmed groups are not in it
				return sharedlog.Errorf(sharedlog.KindCorrupt, "segment %v continues at position %d, and the groups from position %d on are missing", info.ID, d.Position, r.core.Length())
			}
			r.hold(loc, d, true)
		}
		return nil
	})
	return err
}

// hold passes a group on disk to the turn. indexed says that its segment has its outcome.
func (r *loop) hold(loc segment.Location, d *segment.Decoded, indexed bool) {
	r.turn.Restore(storage.Head{
		Position: d.Position, Records: uint64(len(d.Group.Records)), Writer: strings.Clone(d.Group.Writer), Number: d.Group.Number,
		If: sharedlog.Condition{Key: strings.Clone(d.Group.If.Key), Value: slices.Clone(d.Group.If.Value)},
	}, loc, indexed)
}

// found reads the segments that were not closed.
type found struct {
	r     *loop
	saved []*logpb.OutcomeRange
	last  sharedlog.LSN // the LSN after the last group with an outcome
	// end is the position that the next group must have. If the checkpoint does not determine the
	// first one, that may also be at closed, the end of the last closed segment.
	end, closed uint64
	any         bool
	// without holds segments with nothing that continues what is before them.
	without []segment.Info
}

var errGap = errors.New("a segment does not start where the one before ends")

func (f *found) segment(info segment.Info) error {
	r, id := f.r, info.ID
	part := tagindex.NewPart(id)
	groups := 0
	gap := false
	_, err := r.n.store.Scan(id, func(loc segment.Location, d *segment.Decoded) error {
		if !f.any && (f.closed == 0 || d.Position == f.closed) {
			f.end = d.Position
		}
		f.any = true
		if d.Position != f.end {
			return errGap
		}
		groups++
		f.end = d.End()
		if d.Position < r.core.Order().Assigned() {
			return f.indexed(part, loc, d)
		}
		r.hold(loc, d, false)
		return nil
	})
	if errors.Is(err, errGap) {
		gap = true
	} else if err != nil {
		return err
	}
	if groups == 0 {
		f.without = append(f.without, info)
	} else {
		r.disk.Index.Adopt(part)
		r.full = append(r.full, ending{id, f.end})
	}
	if gap {
		return errGap
	}
	return nil
}

// indexed enters a group whose outcome is in the checkpoint.
func (f *found) indexed(part *tagindex.Part, loc segment.Location, d *segment.Decoded) error {
	for len(f.saved) > 0 && f.saved[0].GetTo() <= d.Position {
		f.saved = f.saved[1:]
	}
	if len(f.saved) == 0 || f.saved[0].GetFrom() > d.Position || f.saved[0].GetTo() < d.End() {
		f.end = d.Position
		return errGap // its outcome is unknown: the replica becomes stale
	}
	t := f.saved[0]
	g := tagindex.Group{
		Offset: loc.Offset, Size: loc.Size, Records: uint32(len(d.Group.Records)), Effect: !t.GetVoid(),
		Position: d.Position, First: sharedlog.LSN(t.GetFirst() + d.Position - t.GetFrom()),
	}
	f.last = max(f.last, g.End())
	f.r.core.Learn(&storage.Outcome{First: g.First, Effect: g.Effect, Head: storage.Head{
		Writer: d.Group.Writer, Number: d.Group.Number, Position: d.Position, Records: uint64(g.Records),
	}})
	records := make([]sharedlog.Record, len(d.Group.Records))
	for i := range records {
		for _, t := range d.Group.Records[i].Tags {
			records[i].Tags = append(records[i].Tags, sharedlog.Tag(strings.Clone(string(t))))
		}
	}
	part.Add(g, records)
	return nil
}
