package server

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/files"
)

func (n *Node) files() files.Dir { return files.Dir{FS: n.opt.FS, Path: n.opt.Dir} }

// writeMessage writes a file with a message. Once no older program can read the file any more (see
// listLevel), its checksum includes its name.
func (n *Node) writeMessage(name string, m proto.Message) error {
	return n.files().WriteMessage(name, m, n.table.Level() >= listLevel)
}

// readMessage reads a file of writeMessage. It returns false if the file does not exist or is
// damaged, which makes no difference, since checkpoints are caches.
func (n *Node) readMessage(name string, m proto.Message) (bool, error) {
	ok, damaged, err := n.files().ReadMessage(name, m)
	if damaged {
		n.opt.Logger.Warn("a checkpoint is damaged; its content comes from the metalog or from another node", "node", n.opt.Addr, "file", name)
	}
	return ok, err
}

const tableName = "table"

func orderName(shard uint32) string { return fmt.Sprintf("order-%08d", shard) }

// checkpoint writes the table and the replicas' checkpoints, as far as they have changed. The table
// is written first and is of a later index, so that a restored replica shows readers nothing above
// a shard that the table does not contain (L2). The caller is not in a turn.
func (n *Node) checkpoint() (err error) {
	var changed []*replica
	var at []*saving
	defer func() {
		for _, r := range changed { // not written
			r.lock().dirty = true
			r.unlock()
		}
	}()
	for _, r := range n.all() {
		if err := r.saveWriters(); err != nil {
			return err
		}
		if _, unfinished := r.followed(); !unfinished {
			continue
		}
		c, err := r.lock().where()
		r.unlock()
		if err != nil {
			return err
		}
		if c != nil {
			changed, at = append(changed, r), append(at, c)
		}
	}
	if err := n.saveTable(); err != nil {
		return err
	}
	for len(changed) > 0 {
		// Not in the turn, so that the shard does not wait for the disk.
		if err := changed[0].save(at[0]); err != nil {
			return err
		}
		changed, at = changed[1:], at[1:]
	}
	return nil
}

// saveTable writes the table if it has changed. Both keep and a replica that starts call it. They
// are serialized: otherwise one could remove the other's new file, and an older table could replace
// a newer one.
func (n *Node) saveTable() error {
	n.savingTable.Lock()
	defer n.savingTable.Unlock()
	snap, dirty := n.table.Changed()
	if !dirty {
		return nil
	}
	err := n.writeMessage(tableName, snap)
	if err != nil {
		n.table.Unsaved()
	}
	return err
}

// savedEvents is the number of irrelevant events after which a replica writes a checkpoint only to
// record that it has seen them.
const savedEvents = 10_000

// saving is a checkpoint to be written.
type saving struct {
	number uint64 // increases with each checkpoint
	m      *logpb.ReplicaCheckpoint
}

// checkpoint writes the replica's checkpoint at once.
func (r *loop) checkpoint() error {
	c, err := r.where()
	if err == nil {
		err = r.save(c)
	}
	if err != nil {
		r.dirty = true
	}
	return err
}

// forgetSaving discards the pending checkpoints of a replica that is replaced, so that they cannot
// overwrite those of its successor.
func (r *replica) forgetSaving() {
	r.savingMu.Lock()
	defer r.savingMu.Unlock()
	r.lastSaved = math.MaxUint64
}

// save writes a checkpoint, unless a later one has been written.
func (r *replica) save(c *saving) error {
	if c == nil {
		return nil
	}
	r.savingMu.Lock()
	defer r.savingMu.Unlock()
	if c.number <= r.lastSaved {
		return nil
	}
	if err := r.n.writeMessage(orderName(r.id), c.m); err != nil {
		return err
	}
	r.lastSaved = c.number
	return nil
}

// where returns the replica's checkpoint. It returns nil if nothing has changed, or if the replica
// is about to be full: its checkpoint is written when its segments are closed.
func (r *loop) where() (*saving, error) {
	if r.core.Phase() == storage.PhaseStale || r.finishing || r.saved > 0 && !r.dirty && r.seen < r.saved+savedEvents {
		return nil, nil
	}
	m := &logpb.ReplicaCheckpoint{Shard: r.shard, Index: r.seen, Full: r.core.Phase() == storage.PhaseFull}
	if r.core.Phase() != storage.PhaseFull {
		m.Order = r.core.Order().AppendCheckpoint(nil)
		open := append([]ending(nil), r.full...)
		if r.active != (segment.ID{}) {
			open = append(open, ending{id: r.active})
		}
		for _, s := range open {
			groups, err := r.disk.Index.Groups(s.id)
			if err != nil {
				return nil, err
			}
			for i := range groups {
				g := &groups[i]
				if k := len(m.Outcomes); k > 0 {
					if last := m.Outcomes[k-1]; last.GetTo() == g.Position && last.GetFirst()+last.GetTo()-last.GetFrom() == uint64(g.First) && last.GetVoid() == !g.Effect {
						last.To += uint64(g.Records)
						continue
					}
				}
				m.Outcomes = append(m.Outcomes, &logpb.OutcomeRange{From: g.Position, To: g.Position + uint64(g.Records), First: uint64(g.First), Void: !g.Effect})
			}
		}
	}
	r.dirty, r.saved = false, r.seen
	r.savings++
	return &saving{r.savings, m}, nil
}
