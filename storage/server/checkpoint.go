package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// readFile returns the content of a file, nil if the file does not exist.
func readFile(fsys vfs.FS, path string) ([]byte, error) {
	b, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

// writeFile replaces a file atomically and durably.
func writeFile(fsys vfs.FS, dir, name string, b []byte) error {
	path := filepath.Join(dir, name)
	f, err := fsys.Create(path + "-new")
	if err != nil {
		return segment.IOError("create", path, err)
	}
	_, err = f.WriteAt(b, 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = fsys.Rename(path+"-new", path)
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return segment.IOError("write", path, err)
	}
	return nil
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// writeMessage writes a message after its checksum. Once no older program can read the file any
// more (see listLevel), the checksum includes the file's name, so that a file under a wrong name is
// not used.
func (n *Node) writeMessage(name string, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	crc := crc32.Checksum(b, codec.Castagnoli)
	if n.table.features() >= listLevel {
		crc = namedCRC(name, b)
	}
	return writeFile(n.opt.FS, n.opt.Dir, name, append(binary.LittleEndian.AppendUint32(nil, crc), b...))
}

func namedCRC(name string, b []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), codec.Castagnoli), codec.Castagnoli, b)
}

// readMessage reads a file of writeMessage. It returns false if the file does not exist or is
// damaged, which makes no difference, since checkpoints are caches.
func (n *Node) readMessage(name string, m proto.Message) (bool, error) {
	b, err := readFile(n.opt.FS, filepath.Join(n.opt.Dir, name))
	if err != nil || len(b) < 4 {
		return false, err
	}
	crc := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if namedCRC(name, b) != crc && crc32.Checksum(b, codec.Castagnoli) != crc || proto.Unmarshal(b, m) != nil {
		n.opt.Logger.Warn("a checkpoint is damaged; its content comes from the metalog or from another node", "node", n.opt.Addr, "file", name)
		return false, nil
	}
	return true, nil
}

const tableName = "table"

func orderName(shard uint32) string { return fmt.Sprintf("order-%08d", shard) }

// checkpoint writes the table and the replicas' checkpoints, as far as they have changed. The table
// is written first and is of a later index, so that a restored replica shows readers nothing above
// a shard that the table does not contain (L2). The caller holds no turnMu.
func (n *Node) checkpoint() (err error) {
	var changed []*replica
	var at []*saving
	defer func() {
		for _, r := range changed { // not written
			r.turnMu.Lock()
			r.dirty = true
			r.turnMu.Unlock()
		}
	}()
	for _, r := range n.all() {
		if err := r.saveWriters(); err != nil {
			return err
		}
		if _, unfinished := r.followed(); !unfinished {
			continue
		}
		r.turnMu.Lock()
		c, err := r.where()
		r.turnMu.Unlock()
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
	snap, dirty := n.table.snapshot()
	if !dirty {
		return nil
	}
	err := n.writeMessage(tableName, snap)
	if err != nil {
		n.table.unsaved()
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

// checkpoint writes the replica's checkpoint at once. The caller holds turnMu.
func (r *replica) checkpoint() error {
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
// is about to be full: its checkpoint is written when its segments are closed. The caller holds
// turnMu.
func (r *replica) where() (*saving, error) {
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
			groups, err := r.index.Groups(s.id)
			if err != nil {
				return nil, err
			}
			for i := range groups {
				g := &groups[i]
				if k := len(m.Fates); k > 0 {
					if last := m.Fates[k-1]; last.GetTo() == g.Position && last.GetFirst()+last.GetTo()-last.GetFrom() == uint64(g.First) && last.GetVoid() == !g.Effect {
						last.To += uint64(g.Records)
						continue
					}
				}
				m.Fates = append(m.Fates, &logpb.Fates{From: g.Position, To: g.Position + uint64(g.Records), First: uint64(g.First), Void: !g.Effect})
			}
		}
	}
	r.dirty, r.saved = false, r.seen
	r.savings++
	return &saving{r.savings, m}, nil
}
