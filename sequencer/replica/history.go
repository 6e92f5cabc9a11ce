package replica

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"sort"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// ErrGone means that the requested part of the metalog is not on this disk any more, or never was.
var ErrGone = errors.New("that part of the metalog is gone")

// View is the metalog on a replica's disk at one point in time. It can be read on any goroutine
// while the replica continues: files before the one in use do not change, and the applied entries
// of that one do not either.
//
//	wal-7 = snapshot | entries …      wal-8 = snapshot | entries …      wal-9 (in use)
//	        └ state as of its index ─ apply ─▶ effects  …  up to the next snapshot ─┘
//
// Effects are recomputed from the snapshot at the start of a file. Entries of a file beyond the
// next file's snapshot may have been replaced; the next file has the valid ones.
type View struct {
	fs      vfs.FS
	dir     string
	number  uint64 // of the file in use
	end     int64  // size written to that file
	applied uint64 // raft index
}

// View returns the current view. The file in use may not have its name yet; then the view does not
// include it.
func (r *Replica) View() View {
	v := View{fs: r.opt.FS, dir: r.opt.Dir, number: r.wal.number, end: r.wal.off, applied: r.applied}
	if r.wal.old != nil {
		v.number--
		v.end = 1 << 62
		v.applied = r.marked.GetMetadata().GetIndex()
	}
	return v
}

// Read calls show for each effect after a metalog index, in order, up to the end of the view. It
// returns ErrGone if the effects after that index are not on disk, and errors of show. An error
// that is sharedlog.ErrCorrupt names the file.
func (v View) Read(after uint64, show func(sequencer.Effect) error) error {
	numbers, err := v.files()
	if err != nil {
		return err
	}
	// Find the newest file that starts at or below that index.
	var state *sequencer.State
	var failed error
	i := sort.Search(len(numbers), func(i int) bool {
		s, _, err := v.first(numbers[i])
		failed = errors.Join(failed, err)
		return err != nil || s.Applied() > after
	}) - 1
	if failed != nil {
		return failed
	}
	if i < 0 {
		return ErrGone
	}
	state, index, err := v.first(numbers[i])
	if err != nil {
		return err
	}
	for ; i < len(numbers); i++ {
		upTo := v.applied
		if i+1 < len(numbers) {
			if _, upTo, err = v.first(numbers[i+1]); err != nil {
				return err
			}
			upTo = min(upTo, v.applied)
		}
		if index, err = v.apply(numbers[i], state, index, upTo, after, show); err != nil {
			return err
		}
		if index < upTo {
			return ErrGone // a snapshot replaced the entries in between
		}
	}
	return nil
}

// files returns the numbers of the files in ascending order.
func (v View) files() (numbers []uint64, err error) {
	names, err := v.fs.List(v.dir)
	for _, name := range names {
		if n, ok := walNumber(name); ok && n <= v.number {
			numbers = append(numbers, n)
		}
	}
	return numbers, err
}

// first returns the state at the start of a file, with its raft index.
func (v View) first(number uint64) (*sequencer.State, uint64, error) {
	var state *sequencer.State
	index := uint64(0)
	err := v.scan(number, func(_ int64, kind byte, payload []byte) (bool, error) {
		s := new(saved)
		if err := s.take(kind, payload); err != nil || s.snapshot == nil {
			return false, v.corrupt(number, 0, err)
		}
		var err error
		state, err = sequencer.RestoreState(s.snapshot.GetData())
		index = s.snapshot.GetMetadata().GetIndex()
		return false, err
	})
	if err == nil && state == nil {
		err = v.corrupt(number, 0, errors.New("no snapshot"))
	}
	return state, index, err
}

// apply applies the entries of a file with raft indices after index, up to upTo, and calls show for
// effects after a metalog index. It returns the raft index that it has reached.
func (v View) apply(number uint64, state *sequencer.State, index, upTo, after uint64, show func(sequencer.Effect) error) (uint64, error) {
	// An entry replaces older ones from its index on: those that are written before it with the
	// same or a higher index do not count.
	type cut struct {
		off   int64
		index uint64
	}
	var cuts []cut
	last := uint64(0)
	err := v.scan(number, func(off int64, kind byte, payload []byte) (bool, error) {
		if kind != kindEntry {
			return true, nil
		}
		e := new(raftpb.Entry)
		if err := proto.Unmarshal(payload, e); err != nil {
			return false, v.corrupt(number, off, err)
		}
		if e.GetIndex() <= last {
			cuts = append(cuts, cut{off, e.GetIndex()})
		}
		last = e.GetIndex()
		return true, nil
	})
	if err != nil {
		return index, err
	}
	for i := len(cuts) - 2; i >= 0; i-- { // the lowest index from each one on
		cuts[i].index = min(cuts[i].index, cuts[i+1].index)
	}
	err = v.scan(number, func(off int64, kind byte, payload []byte) (bool, error) {
		if kind != kindEntry {
			return true, nil
		}
		for len(cuts) > 0 && cuts[0].off <= off {
			cuts = cuts[1:]
		}
		s := new(raftpb.Entry)
		if err := proto.Unmarshal(payload, s); err != nil {
			return false, v.corrupt(number, off, err)
		}
		i := s.GetIndex()
		if i <= index || i > upTo || len(cuts) > 0 && i >= cuts[0].index {
			return true, nil
		}
		if i != index+1 {
			return false, v.corrupt(number, off, fmt.Errorf("entry %d behind %d", i, index))
		}
		index = i
		data, _, err := batch(s)
		if err != nil {
			return false, err
		}
		for len(data) > 0 {
			size, k := binary.Uvarint(data)
			if k <= 0 || size > uint64(len(data)-k) {
				return false, v.corrupt(number, off, errors.New("an entry is cut short"))
			}
			entry, err := sequencer.DecodeEntry(data[k : k+int(size)])
			if err != nil {
				return false, err
			}
			data = data[k+int(size):]
			if ef := state.Apply(entry); ef.Index > after {
				if err := show(ef); err != nil {
					return false, err
				}
			}
		}
		return index < upTo, nil
	})
	return index, err
}

// scan calls f for each record of a file until f returns false.
func (v View) scan(number uint64, f func(off int64, kind byte, payload []byte) (more bool, err error)) error {
	path := filepath.Join(v.dir, walName(number))
	file, err := v.fs.Open(path)
	if err != nil {
		return ErrGone // removed in the meantime
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return err
	}
	if number == v.number {
		size = min(size, v.end)
	}
	in := bufio.NewReaderSize(io.NewSectionReader(file, 0, size), 256<<10)
	head := make([]byte, recordHead)
	var payload []byte
	for off := int64(0); ; {
		if _, err := io.ReadFull(in, head); err != nil {
			return nil // the end
		}
		n := int64(binary.LittleEndian.Uint32(head[8:]))
		if binary.LittleEndian.Uint32(head[4:]) != recordMagic || n > size-off-recordHead {
			return nil // the end: zeros, or a torn record
		}
		if int64(cap(payload)) < n {
			payload = make([]byte, n)
		}
		payload = payload[:n]
		if _, err := io.ReadFull(in, payload); err != nil {
			return nil
		}
		if crc32.Update(crc32.Checksum(head[4:], codec.Castagnoli), codec.Castagnoli, payload) != binary.LittleEndian.Uint32(head) {
			return v.corrupt(number, off, errors.New("a record fails its checksum"))
		}
		more, err := f(off, head[20], payload)
		if err != nil || !more {
			return err
		}
		off += recordHead + n
	}
}

func (v View) corrupt(number uint64, off int64, err error) error {
	return sharedlog.Errorf(sharedlog.KindCorrupt, "%s, offset %d: %v; the history of the metalog before it cannot be read here", filepath.Join(v.dir, walName(number)), off, err)
}

// DiskBytes returns the size of the log's files, including the history.
func (r *Replica) DiskBytes() (bytes int64, err error) {
	names, err := r.opt.FS.List(r.opt.Dir)
	for _, name := range names {
		if _, ok := walNumber(name); ok && err == nil {
			var size int64
			size, err = r.opt.FS.Stat(filepath.Join(r.opt.Dir, name))
			bytes += size
		}
	}
	return bytes, err
}

// dropOldest removes the oldest file that is not needed for a restart, and reports whether there
// was one: on a full disk history is removed before anything is refused.
func dropOldest(fs vfs.FS, dir string) bool {
	numbers, err := View{fs: fs, dir: dir, number: 1 << 62}.files()
	return err == nil && len(numbers) > 1 && fs.Remove(filepath.Join(dir, walName(numbers[0]))) == nil
}
