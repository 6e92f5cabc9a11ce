package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// layoutVersion is what the VERSION file says: what this program reads and
// writes below a log's directory.
const layoutVersion = "tailrace embedded log, layout 1\n"

// Open opens the log in a directory, which is made if it is not there. Errors:
// ErrLocked (another process has it), ErrVersion, ErrCorrupt (nothing has been
// changed), ErrFull, ErrInvalid options, and what the file system said.
func Open(dir string, o Options) (_ *Log, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	l := &Log{opt: o, dir: dir, stopped: make(chan struct{}), repeats: map[repeat][]*sharedlog.Pending{}, writers: storage.NewWriters()}
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
		return nil, ioError("make", dir, err)
	}
	if l.lock, err = lock(o.FS, dir); err != nil {
		return nil, err
	}
	opened = append(opened, l.lock)
	if err := checkVersion(o.FS, dir); err != nil {
		return nil, err
	}
	if l.store, err = segment.Open(o.FS, filepath.Join(dir, "segments"), segment.Options{SegmentSize: o.SegmentBytes, Grow: o.Fsync != FsyncAlways}); err != nil {
		return nil, err
	}
	opened = append(opened, l.store)
	l.opt.FS = l.store.FS() // the metalog needs the room of spare segments too
	rec, err := recoverLog(o.FS, dir, l.store)
	if err != nil {
		return nil, err
	}
	var closed []segment.ID
	for _, s := range l.store.Segments() {
		if s.State == segment.StateClosed {
			closed = append(closed, s.ID)
		}
	}
	catalogue := ""
	if o.FS == vfs.OS {
		catalogue = filepath.Join(dir, "catalogue")
	}
	if l.index, err = tagindex.Open(l.store, closed, tagindex.Options{Dir: catalogue}); err != nil {
		return nil, err
	}
	opened = append(opened, l.index)
	if err := l.begin(rec); err != nil {
		return nil, err
	}
	l.readers.Limit = o.ReaderBytes
	l.hub = delivery.New(delivery.Options{Store: l.store, Index: l.index, CacheBytes: o.CacheBytes, Readers: &l.readers, Tail: l.core.State().Tail()})
	l.queue.init(o.QueueBytes)
	l.background.start(l)
	go l.run()
	return l, nil
}

func lock(fsys vfs.FS, dir string) (io.Closer, error) {
	c, err := fsys.Lock(filepath.Join(dir, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, sharedlog.Errorf(sharedlog.KindLocked, "%s is in use by another process; wait until it has ended (also if it is stopped), or use another directory", dir)
	}
	if err != nil {
		return nil, ioError("lock", dir, err)
	}
	return c, nil
}

// checkVersion reads the VERSION file, or writes it into a directory that holds
// nothing of a log yet.
func checkVersion(fsys vfs.FS, dir string) error {
	path := filepath.Join(dir, "VERSION")
	b, err := readFile(fsys, path)
	switch {
	case err == nil && string(b) == layoutVersion:
		return nil
	case err == nil && len(b) > 0:
		return sharedlog.Errorf(sharedlog.KindVersion, "%s says %q, this program reads %q; use the program that wrote it, or another directory",
			path, strings.TrimSpace(string(b)), strings.TrimSpace(layoutVersion))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return ioError("list", dir, err)
	}
	for _, n := range names {
		if _, ok := parseMetaName(n); ok {
			return sharedlog.Errorf(sharedlog.KindVersion, "%s holds a log without a VERSION file", dir)
		}
	}
	f, err := fsys.Create(path)
	if err != nil {
		return ioError("create", path, err)
	}
	_, err = f.WriteAt([]byte(layoutVersion), 0)
	if err = errors.Join(err, f.Sync(), f.Close(), fsys.SyncDir(dir)); err != nil {
		return ioError("write", path, err)
	}
	return nil
}

// recovered is what the files of a log say.
type recovered struct {
	state *sequencer.State
	order *storage.Order // nil: a new log
	shard sequencer.ShardID
	// parts are the indices of the last shard's segments that are not closed,
	// up to where the order goes; torn are segments in which nothing is ordered.
	parts []*tagindex.Part
	// metas are the metalog files there are; the next one gets number next.
	metas []uint64
	next  uint64
	// lost says why the order was ended, "" if it was not.
	lost string
}

// recoverLog reads the metalog and the segments that it speaks of, and computes
// where the order ends. It changes nothing.
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
	files = files[firstNeeded(store, files):]
	if len(files) > 0 && !files[0].hasBase {
		// The very first file, or a power cut took what was never durable.
		if len(files) > 1 {
			return nil, files[0].corrupt(0, errors.New("the file has no snapshot, and a later one exists"))
		}
		files = nil
	}
	if len(files) == 0 {
		for _, s := range store.Segments() {
			if s.State == segment.StateClosed {
				return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "%s holds closed segments and no metalog", dir)
			}
		}
		r.state = sequencer.NewState()
		return r, nil
	}
	base := &files[0].base
	if r.state, err = sequencer.RestoreState(base.state); err != nil {
		return nil, files[0].corrupt(0, err)
	}
	meta := make(map[string][]byte)
	r.state.Metadata(func(k string, v []byte) { meta[k] = v })
	if r.order, err = storage.RestoreOrder(base.mark, meta); err != nil {
		return nil, files[0].corrupt(0, err)
	}
	r.shard = base.shard
	sub, err := scan(store, base)
	if err != nil {
		return nil, err
	}
	if err := r.replay(files, sub); err != nil {
		return nil, err
	}
	return r, r.place(store, sub)
}

// firstNeeded returns the first file that is needed: the newest one all of whose older
// segments are closed. Its snapshot says all that the files before it say, which
// may be there again after a power cut, shortened, because their removal was not
// durable yet.
func firstNeeded(store *segment.Store, files []*metaFile) int {
	first := 0
	for i, f := range files {
		if f.hasBase && !slices.ContainsFunc(store.Segments(), func(s segment.Info) bool {
			return s.ID.Shard == uint32(f.base.shard) && s.ID.Number < f.base.segment && s.State != segment.StateClosed
		}) {
			first = i
		}
	}
	return first
}

// readMetalogs reads all metalog files, oldest first.
func readMetalogs(fsys vfs.FS, dir string) ([]*metaFile, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, ioError("list", dir, err)
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

// sublog is what the last shard's segments hold, from a metalog's base on.
type sublog struct {
	groups []found
	length uint64
	// stop is the damage that a missing record would be.
	stop error
}

type found struct {
	head    storage.Head
	loc     segment.Location
	closed  bool
	records []sharedlog.Record // tags only
}

func scan(store *segment.Store, base *metaBase) (*sublog, error) {
	s := &sublog{length: base.position}
	for _, info := range store.Segments() {
		if info.ID.Shard != uint32(base.shard) || info.ID.Number < base.segment {
			continue
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
		s.stop = f.Damage()
		if errors.Is(err, errGap) {
			break
		}
	}
	if s.stop == nil {
		s.stop = fmt.Errorf("segment %d of shard %d is missing", base.segment, base.shard)
	}
	return s, nil
}

var errGap = errors.New("a segment does not go on where the one before ended")

func cloneTags(records []sharedlog.Record) []sharedlog.Record {
	c := make([]sharedlog.Record, len(records))
	for i := range records {
		for _, t := range records[i].Tags {
			c[i].Tags = append(c[i].Tags, sharedlog.Tag(strings.Clone(string(t))))
		}
	}
	return c
}

// replay applies the metalog's entries until one cannot be filled.
func (r *recovered) replay(files []*metaFile, sub *sublog) error {
	for i := range sub.groups {
		r.order.Hold(sub.groups[i].head)
	}
	// What was surely durable, by the newest word there is.
	durable := uint64(0)
	for _, f := range files {
		if f.hasBase && f.base.shard == r.shard {
			durable = max(durable, f.mark.durable)
		}
	}
	for i, f := range files {
		if i > 0 {
			if !f.hasBase {
				return nil // it was being made when the process ended; nothing is in it
			}
			base, err := sequencer.RestoreState(f.base.state)
			if err != nil {
				return f.corrupt(0, err)
			}
			if base.Applied() != r.state.Applied() {
				before := files[i-1]
				if f.mark.synced > 0 {
					return before.corrupt(before.end, errors.New("entries that were durable are missing"))
				}
				r.lost = fmt.Sprintf("%s ends at offset %d, and the next file goes on later", before.path, before.end)
				return nil
			}
			if f.base.shard != r.shard {
				return f.corrupt(0, fmt.Errorf("the file is of shard %d, the one before of shard %d", f.base.shard, r.shard))
			}
		}
		for _, frame := range f.frames {
			for _, e := range frame.entries {
				if need := reach1(e, r.shard); need > sub.length {
					if need <= durable {
						return sub.stop
					}
					r.lost = fmt.Sprintf("the sublog has %d records and a cut speaks of %d: %v", sub.length, need, sub.stop)
					return nil
				}
				r.apply(e)
			}
		}
	}
	return nil
}

// reach1 returns the length that a cut asks of a shard, 0 if it is none.
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

// place computes the fates of what is ordered, and the indices of the segments
// that are not closed.
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

// begin ends the shard that was open and opens another (invariant 1).
func (l *Log) begin(r *recovered) error {
	if err := l.endShard(r); err != nil {
		return err
	}
	if r.lost != "" {
		r.state.Apply(sequencer.Entry{Kind: sequencer.KindGeneration})
		l.opt.Logger.Warn("a power cut took the end of the log: the order ends at the last place that can be filled",
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
	l.order = storage.NewOrder(maps.Clone(meta))
	l.core = sequencer.NewCore(r.state)
	var err error
	if l.appender, err = l.store.NewAppender(uint32(id)); err != nil {
		return err
	}
	if l.meta, err = l.newMetalog(r.next, l.appender.Active().Number, 0); err != nil {
		return errors.Join(err, l.appender.Close())
	}
	if err := errors.Join(l.meta.sync(), l.opt.FS.SyncDir(l.dir)); err != nil {
		return errors.Join(ioError("sync", l.meta.path, err), l.meta.f.Close(), l.appender.Close())
	}
	l.index.Begin(l.appender.Active())
	// All that the older files say is in this one and in footers.
	for _, n := range r.metas {
		if err := l.opt.FS.Remove(metaName(l.dir, n)); err != nil {
			return errors.Join(ioError("remove", metaName(l.dir, n), err), l.meta.f.Close(), l.appender.Close())
		}
	}
	return nil
}

// endShard closes the segments that the last process left open, at the end of
// what is ordered, and deletes those in which nothing is.
func (l *Log) endShard(r *recovered) error {
	for _, p := range r.parts {
		l.index.Adopt(p)
		if err := closeSegment(l.store, l.index, p.ID); err != nil {
			return err
		}
	}
	for _, s := range l.store.Segments() {
		if s.State != segment.StateClosed {
			if err := l.store.Delete(s.ID); err != nil {
				return err
			}
		}
	}
	return nil
}
