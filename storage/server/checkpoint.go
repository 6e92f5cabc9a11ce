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

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readFile returns what a file holds, nil if there is none.
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

// writeFile puts a file in the place of the one before, whole.
func writeFile(fsys vfs.FS, dir, name string, b []byte) error {
	path := filepath.Join(dir, name)
	f, err := fsys.Create(path + "-new")
	if err != nil {
		return ioError("create", path, err)
	}
	_, err = f.WriteAt(b, 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = fsys.Rename(path+"-new", path)
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return ioError("write", path, err)
	}
	return nil
}

func ioError(what, path string, err error) error {
	if vfs.Full(err) {
		return sharedlog.Errorf(sharedlog.KindFull, "%s %s: %w", what, path, err)
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// writeMessage writes a message behind its checksum. From the feature level on at which
// no older program reads it that is over the file's name too: a file under another's name
// means nothing.
func (n *Node) writeMessage(name string, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	crc := crc32.Checksum(b, castagnoli)
	if n.table.features() >= listLevel {
		crc = namedCRC(name, b)
	}
	return writeFile(n.opt.FS, n.opt.Dir, name, append(binary.LittleEndian.AppendUint32(nil, crc), b...))
}

func namedCRC(name string, b []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, b)
}

// readMessage is its inverse; false: there is none, or it is damaged, which is the
// same, since checkpoints are caches.
func (n *Node) readMessage(name string, m proto.Message) (bool, error) {
	b, err := readFile(n.opt.FS, filepath.Join(n.opt.Dir, name))
	if err != nil || len(b) < 4 {
		return false, err
	}
	crc := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if namedCRC(name, b) != crc && crc32.Checksum(b, castagnoli) != crc || proto.Unmarshal(b, m) != nil {
		n.opt.Logger.Warn("a checkpoint is damaged; what it held comes from the metalog or from another node", "node", n.opt.Addr, "file", name)
		return false, nil
	}
	return true, nil
}

const tableName = "table"

func orderName(shard uint32) string { return fmt.Sprintf("order-%08d", shard) }

// checkpoint writes down where the node is, as far as it has changed; not of a turn. The
// table comes before the replicas, and is as of a later index: a replica that is restored
// shows readers nothing above a shard that the table does not know (L2).
func (n *Node) checkpoint() (err error) {
	var changed []*replica
	var at []*saving
	defer func() {
		for _, r := range changed { // those that have not been written
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
		// Written here, not in the turn: the shard does not wait for the disk.
		if err := changed[0].save(at[0]); err != nil {
			return err
		}
		changed, at = changed[1:], at[1:]
	}
	return nil
}

// saveTable writes down what the metalog has said, if there is anything new. The ticker
// and who opens a shard both do it: one at a time, or one would take the other's new file
// away, and an older table could replace a newer one.
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

// savedEvents is how many events may pass that change nothing here before a
// checkpoint says that they were seen.
const savedEvents = 10_000

// saving is a checkpoint that is to be written.
type saving struct {
	number uint64 // later ones have higher numbers
	m      *logpb.ReplicaCheckpoint
}

// checkpoint writes down where the replica is, at once; of the turn.
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

// forgetSaving is for a replica that another one takes the place of: nothing that it
// still has to write may come behind what that one writes.
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

// where says where the replica is, nil if nothing has changed since, or if it is about to
// be full: that is said when its segments are closed. Of the turn.
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
