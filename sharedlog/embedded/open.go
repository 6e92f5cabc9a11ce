package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/shard"
	"tailrace.dev/tailrace/storage/tagindex"
)

// layoutVersion is the content of the VERSION file: the layout that this program writes. It also
// reads unlistedVersion, which has no list of closed segments, and upgrades it.
const (
	layoutVersion   = "tailrace embedded log, layout 2\n"
	unlistedVersion = "tailrace embedded log, layout 1\n"
)

// Open opens the log in a directory and creates the directory if it does not exist. Errors:
// ErrLocked (another process uses it), ErrVersion, ErrCorrupt (the order cannot be computed;
// nothing was changed), ErrFull, ErrInvalid options, and errors of the file system. A closed
// segment that is damaged or missing does not make Open fail: Open logs it, and readers that reach
// it get ErrCorrupt.
func Open(dir string, o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l, err := open(dir, o)
	if sharedlog.KindOf(err) == sharedlog.KindFull && vfs.BallastIn(o.FS, dir, ballastBytes).Drop() {
		// A full disk must not prevent Open: nothing could be trimmed then.
		l, err = open(dir, o)
	}
	return l, err
}

// ballastBytes is the least size of the ballast: room for a metalog file with a small snapshot, for
// the ends of segments that the last process left open, and for trims.
const ballastBytes = 4 << 20

// ballastFor returns how large the ballast must be so that the log can be opened on a full disk
// after its metadata has grown by more bytes: Open writes a snapshot of the whole state beside the
// existing one.
func (l *loop) ballastFor(more int) int64 {
	w := l.core.State().Weight()
	const each = 2 * binary.MaxVarintLen64 // lengths, positions
	snapshot := w.KeyBytes + w.TrimBytes + each*(w.Keys+w.Trims+4*w.Shards) + l.replica.Order().MarkSize() + more
	return l.leastBallast() + int64(max(0, snapshot))/metaGrow*metaGrow
}

// leastBallast returns the size of the ballast without metadata. Segments that are allocated in
// advance need room for the first one.
func (l *Log) leastBallast() int64 {
	if l.opt.Fsync != FsyncAlways {
		return ballastBytes
	}
	return ballastBytes + min(l.opt.SegmentBytes, firstSegment)
}

// firstSegment bounds the length of the first segment's file.
const firstSegment = 4 << 20

func open(dir string, o Options) (_ *Log, err error) {
	l := &Log{opt: o, dir: dir, stopped: make(chan struct{})}
	l.loop.Log = l
	var opened []io.Closer
	defer func() {
		if err == nil {
			return
		}
		for _, c := range slices.Backward(opened) {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := o.FS.MkdirAll(dir); err != nil {
		return nil, segment.IOError("make", dir, err)
	}
	if l.lock, err = lock(o.FS, dir); err != nil {
		return nil, err
	}
	opened = append(opened, l.lock)
	listed, err := checkVersion(o.FS, dir)
	if err != nil {
		return nil, err
	}
	if l.store, err = segment.Open(o.FS, filepath.Join(dir, "segments"), segment.Options{
		SegmentSize: o.SegmentBytes, FirstSize: firstSegment, Grow: o.Fsync != FsyncAlways, Listed: listed, Extent: tagindex.Extent, Damaged: l.damaged,
	}); err != nil {
		return nil, err
	}
	opened = append(opened, l.store)
	l.opt.FS = l.store.FS() // the metalog needs the room of spare segments, too
	rec, err := recoverLog(o.FS, dir, l.store)
	if sharedlog.KindOf(err) == sharedlog.KindCorrupt {
		return nil, fmt.Errorf("%w. The order of the log follows from this file: put it back from a copy; nothing has been changed", err)
	}
	if err != nil {
		return nil, err
	}
	if err := rec.sync(l.opt.FS, dir); err != nil {
		return nil, err
	}
	if !listed {
		err := rec.adopt(l.store)
		if err == nil {
			err = l.store.SaveList()
		}
		if err == nil {
			err = writeVersion(o.FS, dir)
		}
		if err != nil {
			return nil, err
		}
	}
	closed := l.closedSegments()
	catalogue := ""
	if o.FS == vfs.OS {
		catalogue = filepath.Join(dir, "catalogue")
	}
	if l.index, err = tagindex.Open(l.store, closed, tagindex.Options{Dir: catalogue, Tail: rec.state.Tail()}); err != nil {
		return nil, err
	}
	opened = append(opened, l.index)
	if err := l.begin(rec); err != nil {
		return nil, err
	}
	l.readers.Limit = o.ReaderBytes
	l.hub = delivery.New(delivery.Options{Store: l.store, Index: l.index, CacheBytes: o.CacheBytes, Readers: &l.readers, Tail: l.core.State().Tail()})
	l.queue.init(o.QueueBytes)
	l.reserve = vfs.NewReserve(vfs.ReserveOptions{FS: l.opt.FS, Dir: dir, Bytes: o.ReserveBytes, Ballast: l.leastBallast(), Spare: l.store.GiveWay})
	l.reserve.Cover(l.loop.ballastFor(0))
	if len(closed) > 0 {
		l.reserve.Keep() // restores the ballast, also if Open has just used it
	}
	if l.reserve.ReadOnly() {
		l.sayReadOnly()
	}
	l.background.start(l)
	go l.loop.run()
	return l, nil
}

func lock(fsys vfs.FS, dir string) (io.Closer, error) {
	c, err := fsys.Lock(filepath.Join(dir, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, sharedlog.Errorf(sharedlog.KindLocked, "%s is in use by another process; wait until it has ended (also if it is stopped), or use another directory", dir)
	}
	if err != nil {
		return nil, segment.IOError("lock", dir, err)
	}
	return c, nil
}

// closedSegments returns the closed segments and logs which are damaged.
func (l *Log) closedSegments() (closed []segment.Info) {
	for _, s := range l.store.Segments() {
		if s.State != segment.StateClosed {
			continue
		}
		if s.Repaired != "" {
			l.opt.Logger.Warn("a segment file was damaged and has been repaired", "dir", l.dir, "segment", s.ID, "was", s.Repaired)
		}
		if s.Damage != nil {
			l.damaged(s.ID, s.Damage)
		}
		closed = append(closed, s)
	}
	return closed
}

// damaged logs that a closed segment is damaged.
func (l *Log) damaged(_ segment.ID, err error) {
	l.opt.Logger.Error("a segment is damaged: readers of its records get this error. Restore the file from a copy, or start reading after it", "dir", l.dir, "error", err)
}

// checkVersion reads the VERSION file. listed means that the directory has a list of its closed
// segments. Without a VERSION file the directory must hold nothing of a log.
func checkVersion(fsys vfs.FS, dir string) (listed bool, _ error) {
	path := filepath.Join(dir, "VERSION")
	b, err := readFile(fsys, path)
	switch {
	case err == nil && string(b) == layoutVersion:
		return true, nil
	case err == nil && string(b) == unlistedVersion:
		return false, nil
	case err == nil && len(b) > 0:
		return false, sharedlog.Errorf(sharedlog.KindVersion, "%s says %q, this program reads %q; use the program that wrote it, or another directory",
			path, strings.TrimSpace(string(b)), strings.TrimSpace(layoutVersion))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return false, segment.IOError("list", dir, err)
	}
	for _, n := range names {
		if _, ok := parseMetaName(n); ok {
			return false, sharedlog.Errorf(sharedlog.KindVersion, "%s holds a log, but no VERSION file: put it back from a copy of the directory, or write %q to it if this release of the program wrote the log", dir, layoutVersion)
		}
	}
	return false, nil
}

// writeVersion writes the VERSION file, after the list was written.
func writeVersion(fsys vfs.FS, dir string) error {
	path := filepath.Join(dir, "VERSION")
	f, err := fsys.Create(path + "-new")
	if err != nil {
		return segment.IOError("create", path, err)
	}
	_, err = f.WriteAt([]byte(layoutVersion), 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
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

// recovered is what recovery reads from a log's files.
type recovered struct {
	state *sequencer.State
	order *storage.Order // nil: a new log
	shard sequencer.ShardID
	// segment is the number of that shard's first segment whose groups the metalog orders; all
	// before it must be closed.
	segment uint32
	// parts are the indexes of the last shard's segments that are not closed, up to the end of the
	// order; torn are segments in which nothing is ordered.
	parts []*tagindex.Part
	// metas are the numbers of the existing metalog files; next is the number for the next one.
	metas []uint64
	next  uint64
	// lost is the reason why the order was ended early, or "".
	lost string
}

// recoverLog reads the metalog and the segments that it refers to, and computes where the order
// ends. It changes nothing.
func recoverLog(fsys vfs.FS, dir string, store *segment.Store) (*recovered, error) {
	files, err := readMetalogs(fsys, dir)
	if err != nil {
		return nil, err
	}
	r := &recovered{next: 1}
	for _, f := range files {
		r.metas = append(r.metas, f.number)
		r.next = f.number + 1
	}
	first := firstNeeded(store, files)
	if first < 0 {
		if err := neverOpened(store, files, dir); err != nil {
			return nil, err
		}
		r.state = sequencer.NewState()
		return r, nil
	}
	files = files[first:]
	base := &files[0].base
	if r.state, err = sequencer.RestoreState(base.state); err != nil {
		return nil, files[0].corrupt(0, err)
	}
	meta := make(map[string][]byte)
	r.state.Metadata(func(k string, v []byte) { meta[k] = v })
	if r.order, err = storage.RestoreOrder(base.mark, meta); err != nil {
		return nil, files[0].corrupt(0, err)
	}
	r.shard, r.segment = base.shard, base.segment
	sub, err := scan(store, files, filepath.Join(dir, "segments"))
	if err != nil {
		return nil, err
	}
	if err := r.replay(files, sub); err != nil {
		return nil, err
	}
	return r, r.place(store, sub)
}

// sync makes the metalog durable, which a killed process may not have done. Otherwise a segment
// could be closed, with LSNs from the metalog, and survive a power cut that the metalog does not
// survive: its LSNs would be used again.
func (r *recovered) sync(fsys vfs.FS, dir string) error {
	for _, n := range r.metas {
		path := metaName(dir, n)
		f, err := fsys.OpenReadWrite(path)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return segment.IOError("sync", path, err)
		}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return segment.IOError("sync", dir, err)
	}
	return nil
}

// adopt adds segments to the list that must have been closed but do not look closed: they were
// damaged before there was a list. If there is a list, a segment that is not closed was left by a
// process that was killed in Open before it discarded the segment.
func (r *recovered) adopt(store *segment.Store) error {
	for _, s := range store.Segments() {
		before := segment.ID{Shard: uint32(r.shard), Number: r.segment}
		if s.State != segment.StateClosed && s.ID.Compare(before) < 0 {
			if err := store.Adopt(s.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// firstNeeded returns the index of the first file that recovery needs, or -1 if no file has a
// snapshot. It is the newest file whose snapshot depends only on records in closed segments. Its
// snapshot includes the files before it. After a power cut these may be there again, shortened,
// because their removal was not durable yet.
//
// Closed are the segments on the list, also if their files are missing. A segment that is not on
// the list and has no file was not removed by this program (invariant 7): the file that orders its
// records is then needed, and scan reports that the records are missing. A segment that ends before
// the snapshot begins was closed by an Open that found less of it after a power cut, and that ended
// before it wrote a metalog of its own: the snapshot then refers to lost records.
func firstNeeded(store *segment.Store, files []*metaFile) int {
	first := -1
	var position uint64 // closed segments hold the shard from its first file's position up to here
	var closed []segment.Info
	for i, f := range files {
		switch {
		case !f.hasBase:
			continue
		case first < 0 || files[first].base.shard != f.base.shard:
			// This is the first file of a newer shard: everything before it is closed (Log.begin).
			first, position = i, f.base.position
			closed = slices.DeleteFunc(store.Segments(), func(s segment.Info) bool {
				return s.State != segment.StateClosed || s.ID.Shard != uint32(f.base.shard) || s.ID.Number < f.base.segment
			})
			continue
		}
		for len(closed) > 0 && closed[0].ID.Number < f.base.segment && closed[0].Extent.From == position {
			position = closed[0].Extent.To
			closed = closed[1:]
		}
		if position == f.base.position {
			first = i
		}
	}
	return first
}

// neverOpened returns an error unless the log without a snapshot is one whose first Open did not
// finish. A last file without a snapshot can only be the first one ever, because a later file
// replaces the one before only when its snapshot is durable.
func neverOpened(store *segment.Store, files []*metaFile, dir string) error {
	if len(files) > 0 && files[0].number > 1 {
		return files[0].corrupt(0, errors.New("the snapshot is damaged"))
	}
	used := !store.Fresh()
	for _, s := range store.Segments() {
		if used = used || s.State != segment.StateOpen || s.ID.Shard > 1; used {
			break
		}
		f, err := store.Scan(s.ID, func(segment.Location, *segment.Decoded) error { return nil })
		if err != nil {
			return err
		}
		used = f.Frames > 0
	}
	if used {
		return sharedlog.Errorf(sharedlog.KindCorrupt, "%s: there is no such file, and %s holds, or held, records", filepath.Join(dir, "meta-*.log"), filepath.Join(dir, "segments"))
	}
	return nil
}

// readMetalogs reads all metalog files, oldest first.
func readMetalogs(fsys vfs.FS, dir string) ([]*metaFile, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, segment.IOError("list", dir, err)
	}
	var numbers []uint64
	for _, n := range names {
		if number, ok := parseMetaName(n); ok {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	var files []*metaFile
	for _, n := range numbers {
		f, err := readMetalog(fsys, dir, n)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// sublog is the content of the last shard's segments, starting at a metalog's base.
type sublog struct {
	groups []found
	length uint64
	// stop is the damage that explains a missing record; certain means that no power cut can be its
	// cause.
	stop    error
	certain bool
}

type found struct {
	head    storage.Head
	loc     segment.Location
	closed  bool
	records []sharedlog.Record // without data, only tags
}

// scan reads the shard's segments, starting at that of the first file; segments is their directory.
// A segment must exist if a file's snapshot names it or if a later segment exists: a segment's name
// is durable before anything is written to it, and it is deleted only when no file that orders it
// is left, or when it is empty and the one before is closed.
func scan(store *segment.Store, files []*metaFile, segments string) (*sublog, error) {
	base := &files[0].base
	s := &sublog{length: base.position}
	named := base.segment // the newest segment that a snapshot names
	for _, f := range files {
		if f.hasBase && f.base.shard == base.shard {
			named = max(named, f.base.segment)
		}
	}
	next := base.segment
	missing := func() {
		id := segment.ID{Shard: uint32(base.shard), Number: next}
		s.certain = true
		s.stop = sharedlog.Errorf(sharedlog.KindCorrupt, "%s, offset 0: the file is missing, and it was not closed yet", filepath.Join(segments, id.String()+".seg"))
	}
	closed := false // whether the previous segment is closed
	for _, info := range store.Segments() {
		if info.ID.Shard != uint32(base.shard) || info.ID.Number < base.segment {
			continue
		}
		gap := info.ID.Number > next
		if gap && (!closed || next <= named) {
			missing()
			return s, nil
		}
		f, err := store.Scan(info.ID, func(loc segment.Location, d *segment.Decoded) error {
			if d.Position != s.length {
				return errGap
			}
			g := found{loc: loc, closed: info.State == segment.StateClosed, head: storage.Head{
				Position: d.Position, Records: uint64(len(d.Group.Records)),
				Writer: strings.Clone(d.Group.Writer), Number: d.Group.Number,
				If: sharedlog.Condition{Key: strings.Clone(d.Group.If.Key), Value: slices.Clone(d.Group.If.Value)},
			}}
			if !g.closed {
				g.records = cloneTags(d.Group.Records)
			}
			s.groups = append(s.groups, g)
			s.length = d.End()
			return nil
		})
		if err != nil && !errors.Is(err, errGap) {
			return nil, err
		}
		if errors.Is(err, errGap) {
			if gap {
				missing()
			}
			return s, nil // with the previous segment's damage in s.stop
		}
		s.stop = f.Damage()
		if info.State == segment.StateDamaged {
			// A header is durable before a file gets its segment's name, so this is damage.
			s.certain = true
			return s, nil
		}
		next, closed = info.ID.Number+1, info.State == segment.StateClosed
	}
	if next <= named {
		missing()
	}
	return s, nil
}

var errGap = errors.New("a segment does not continue where the one before ended")

func cloneTags(records []sharedlog.Record) []sharedlog.Record {
	c := make([]sharedlog.Record, len(records))
	for i := range records {
		for _, t := range records[i].Tags {
			c[i].Tags = append(c[i].Tags, sharedlog.Tag(strings.Clone(string(t))))
		}
	}
	return c
}

// replay applies the metalog's entries until a cut cannot be filled.
func (r *recovered) replay(files []*metaFile, sub *sublog) error {
	for i := range sub.groups {
		r.order.Hold(sub.groups[i].head)
	}
	// What was certainly durable, by the newest sync mark.
	durable := uint64(0)
	for _, f := range files {
		if f.hasBase && f.base.shard == r.shard {
			durable = max(durable, f.mark.durable)
		}
	}
	length := files[0].base.position // end of what is ordered
	before := files[0]
	for i, f := range files {
		if i > 0 {
			if !f.hasBase {
				continue // it was being created when the process ended, and is empty
			}
			base, err := sequencer.RestoreState(f.base.state)
			if err != nil {
				return f.corrupt(0, err)
			}
			if base.Applied() != r.state.Applied() {
				if f.mark.synced > 0 || length < durable {
					return before.corrupt(before.end, errors.New("entries that were durable are missing"))
				}
				r.lost = fmt.Sprintf("%s ends at offset %d, before the next file begins", before.path, before.end)
				return nil
			}
			if f.base.shard != r.shard {
				return f.corrupt(0, fmt.Errorf("the file is of shard %d, the one before of shard %d", f.base.shard, r.shard))
			}
			before = f
		}
		for _, frame := range f.frames {
			for _, e := range frame.entries {
				need := reach1(e, r.shard)
				if need > sub.length {
					if need <= durable || sub.certain {
						return sub.stop
					}
					r.lost = fmt.Sprintf("the sublog has %d records and a cut covers %d: %v", sub.length, need, sub.stop)
					return nil
				}
				r.apply(e)
				length = max(length, need)
			}
		}
	}
	return nil
}

// reach1 returns the length of the shard that a cut orders, or 0 if e is no cut.
func reach1(e sequencer.Entry, shard sequencer.ShardID) uint64 {
	if e.Kind == sequencer.KindCut {
		for _, c := range e.Cut {
			if c.Shard == shard {
				return c.Length
			}
		}
	}
	return 0
}

func (r *recovered) apply(e sequencer.Entry) {
	switch ef := r.state.Apply(e); ef.Kind {
	case sequencer.KindCut:
		for _, run := range ef.Runs {
			if run.Shard == r.shard {
				r.order.Cut(run.To, run.First)
			}
		}
	case sequencer.KindChange:
		if ef.OK {
			r.order.Change(ef.Key, ef.Value)
		}
	}
}

// place computes the outcomes of the ordered groups and the indexes of the segments that are not
// closed.
func (r *recovered) place(store *segment.Store, sub *sublog) error {
	var part *tagindex.Part
	for i := range sub.groups {
		g := &sub.groups[i]
		f, ok, err := r.order.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if g.closed {
			continue
		}
		if part == nil || part.ID != g.loc.ID {
			part = tagindex.NewPart(g.loc.ID)
			r.parts = append(r.parts, part)
		}
		part.Add(tagindex.Group{
			Offset: g.loc.Offset, Size: g.loc.Size, Records: uint32(f.Records), Effect: f.Effect, Position: f.Position, First: f.First,
		}, g.records)
	}
	return nil
}

// begin seals the shard that was open and opens another (invariant 1).
func (l *Log) begin(r *recovered) error {
	rest, err := l.endShard(r)
	if err != nil {
		return err
	}
	if r.lost != "" {
		r.state.Apply(sequencer.Entry{Kind: sequencer.KindGeneration})
		l.opt.Logger.Warn("a power cut took the end of the log: the order now ends at the last cut whose records survived",
			"dir", l.dir, "tail", uint64(r.state.Tail()), "generation", r.state.Generation(), "found", r.lost)
	}
	if r.shard != 0 {
		r.state.Apply(sequencer.Entry{Kind: sequencer.KindSeal, Shard: r.shard})
	}
	id := sequencer.ShardID(r.state.Opened() + 1)
	r.state.Apply(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: uint64(id)})
	l.shard = id
	meta := make(map[string][]byte)
	r.state.Metadata(func(k string, v []byte) { meta[k] = v })
	l.loop.replica = storage.NewReplica(meta, true, 0)
	l.loop.turn = shard.New[*sharedlog.Pending](l.loop.replica, uint32(id), nil) // a shard of this process: nothing is restored
	l.core = sequencer.NewCore(r.state)
	if l.appender, err = l.store.NewAppender(uint32(id)); err != nil {
		return err
	}
	if l.meta, err = l.loop.newMetalog(r.next, l.appender.Active().Number, 0); err != nil {
		return errors.Join(err, l.appender.Close())
	}
	if err := errors.Join(l.meta.sync(), l.opt.FS.SyncDir(l.dir)); err != nil {
		return errors.Join(segment.IOError("sync", l.meta.path, err), l.meta.f.Close(), l.appender.Close())
	}
	l.index.Begin(l.appender.Active())
	if err := l.store.SetUsed(); err != nil { // there is a metalog from now on; a missing one is damage
		return errors.Join(err, l.meta.f.Close(), l.appender.Close())
	}
	// The new file and the footers hold everything that is in the older files.
	for _, n := range r.metas {
		if err := l.opt.FS.Remove(metaName(l.dir, n)); err != nil {
			return errors.Join(segment.IOError("remove", metaName(l.dir, n), err), l.meta.f.Close(), l.appender.Close())
		}
	}
	if err := l.discard(rest); err != nil {
		return errors.Join(err, l.meta.f.Close(), l.appender.Close())
	}
	return nil
}

// endShard closes the segments that the last process left open, at the end of the order, and
// returns those in which nothing is ordered.
func (l *Log) endShard(r *recovered) (rest []segment.Info, err error) {
	for _, p := range r.parts {
		l.index.Adopt(p)
		if err := closeSegment(l.store, l.index, p.ID); err != nil {
			return nil, err
		}
	}
	for _, s := range l.store.Segments() {
		if s.State == segment.StateOpen || s.State == segment.StateDamaged {
			rest = append(rest, s)
		}
	}
	return rest, nil
}

// discard deletes the segments in which nothing is ordered. All older metalog files must be gone:
// otherwise a later Open would find an older file without these segments and take their records for
// ordered and closed.
func (l *Log) discard(rest []segment.Info) error {
	var torn []segment.ID
	for _, s := range rest {
		switch s.State {
		case segment.StateOpen:
			torn = append(torn, s.ID)
		case segment.StateDamaged:
			name, err := l.store.SetAside(s.ID)
			if err != nil {
				return err
			}
			l.opt.Logger.Warn("a file does not match its name and was set aside; no ordered record is missing", "file", name, "error", s.Damage)
		}
	}
	return l.store.Delete(torn...)
}
