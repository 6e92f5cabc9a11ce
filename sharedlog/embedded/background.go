package embedded

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

const (
	// retryEvery is how soon the janitor retries what failed on a full disk.
	retryEvery = time.Second
	// trimPause is the least time between two searches for segments to delete: trims come in
	// hundreds, and each search visits all segments.
	trimPause = 100 * time.Millisecond
	// watchEvery is how often the janitor checks the free space of the disk.
	watchEvery = 200 * time.Millisecond
)

// background holds the goroutines beside the loop: the syncer (fdatasync every interval), the
// janitor (closes full segments, deletes segments and metalog files that are not needed) and the
// scrubber. An error of theirs fails the log.
type background struct {
	log  *Log
	quit chan struct{}
	wake chan struct{} // wakes the janitor
	wg   sync.WaitGroup

	// files is held while a metalog file is synced or closed, so that the syncer does not use one
	// that the janitor has closed. Lock order: files, then mu.
	files  sync.Mutex
	closed bool // Close has closed, or will close, all files: nothing can be synced any more

	synced chan struct{} // wakes the syncer: a trim waits

	// removed are segments that the index has removed and whose deletion failed. Used by the
	// janitor only.
	removed []segment.ID

	mu      sync.Mutex
	jobs    []fullSegment
	written reach      // what the loop has written
	durable reach      // what is certainly on disk
	trims   []*request // in effect; answered when they are durable
	failed  error
}

// fullSegment is a segment to close. old is the metalog file that is not needed after that (nil:
// none), and next the file that replaced it.
type fullSegment struct {
	id        segment.ID
	old, next *metalog
}

// reach is a point up to which the log was written or synced: a metalog file, an offset in it, a
// length of the sublog, and the tail.
type reach struct {
	meta   *metalog
	off    int64
	length uint64
	tail   sharedlog.LSN
}

func (b *background) start(l *Log) {
	b.log = l
	b.quit, b.wake, b.synced = make(chan struct{}), make(chan struct{}, 1), make(chan struct{}, 1)
	b.durable = reach{meta: l.meta, off: l.meta.off, tail: l.hub.Tail()}
	b.written = b.durable
	b.wg.Go(b.janitor)
	if l.opt.Fsync != FsyncAlways {
		b.wg.Go(b.syncer)
	}
	if l.opt.ScrubRate >= 0 {
		b.wg.Go(b.scrub)
	}
}

// stop ends the goroutines and waits for them.
func (b *background) stop() error {
	close(b.quit)
	b.wg.Wait()
	var errs []error
	if err := b.syncTrims(); err != nil {
		errs = append(errs, err)
	}
	b.files.Lock()
	b.closed = true
	b.files.Unlock()
	for _, j := range b.jobs { // the next Open finishes these
		if j.old != nil {
			errs = append(errs, j.old.f.Close())
		}
	}
	return errors.Join(errs...)
}

func (b *background) fail(err error) {
	l := b.log
	b.mu.Lock()
	first := b.failed == nil
	b.failed = errors.Join(b.failed, err)
	b.mu.Unlock()
	if first {
		l.opt.Logger.Error("the log has failed; open it again", "dir", l.dir, "error", err)
	}
	l.queue.fail(err)
	l.hub.Close(l.queue.failure())
}

// reached records how far the loop has written.
func (b *background) reached(m *metalog, length uint64, tail sharedlog.LSN) {
	b.mu.Lock()
	b.written = reach{m, m.off, length, tail}
	if b.log.opt.Fsync == FsyncAlways {
		b.durable = b.written
	}
	b.mu.Unlock()
}

// durableTail returns the LSN below which no record can be lost.
func (b *background) durableTail() sharedlog.LSN {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.durable.tail
}

// mark returns what is certainly durable, to be written into metalog file m.
func (b *background) mark(m *metalog) syncMark {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := syncMark{durable: b.durable.length}
	if b.durable.meta == m {
		k.synced = b.durable.off
	}
	return k
}

// metaBytes returns the length of all metalog files that it can stat.
func (b *background) metaBytes() (sum uint64) {
	names, err := b.log.opt.FS.List(b.log.dir)
	if err != nil {
		return 0
	}
	for _, name := range names {
		if _, ok := parseMetaName(name); !ok {
			continue
		}
		if n, err := b.log.opt.FS.Stat(filepath.Join(b.log.dir, name)); err == nil { // the file may be gone
			sum += uint64(n)
		}
	}
	return sum
}

// syncer syncs what was written: every interval (not with FsyncNever), and when a trim waits for
// it.
func (b *background) syncer() {
	var interval <-chan time.Time
	if b.log.opt.Fsync == FsyncInterval {
		t := time.NewTicker(b.log.opt.FsyncInterval)
		defer t.Stop()
		interval = t.C
	}
	for {
		var err error
		select {
		case <-b.quit:
			return
		case <-b.synced:
			err = b.syncTrims()
		case <-interval:
			err = b.sync()
		}
		if err != nil {
			b.fail(err)
			return
		}
	}
}

// trimmed handles a trim that the loop has applied: the syncer answers it when it is durable, and
// the janitor looks for segments to delete.
func (b *background) trimmed(r *request) {
	r.waits = true
	if b.log.opt.Fsync == FsyncAlways { // its entry is on disk
		close(r.done)
		b.nudge()
		return
	}
	b.mu.Lock()
	b.trims = append(b.trims, r)
	b.mu.Unlock()
	select {
	case b.synced <- struct{}{}:
	default:
	}
	b.nudge()
}

// syncTrims makes the waiting trims durable and answers them.
func (b *background) syncTrims() error {
	b.mu.Lock()
	trims := b.trims
	b.trims = nil
	b.mu.Unlock()
	if len(trims) == 0 {
		return nil
	}
	err := b.log.queue.broken()
	if err == nil {
		err = b.sync()
	}
	for _, r := range trims {
		if err != nil {
			r.fail(sharedlog.Errorf(sharedlog.KindUnknown, "the log failed before the trim was durable: %w", err))
			continue
		}
		close(r.done)
	}
	return err
}

// sync makes everything that was written durable.
func (b *background) sync() error {
	b.files.Lock()
	defer b.files.Unlock()
	return b.syncFiles()
}

// syncBelow makes everything below an LSN durable. It does nothing if another goroutine has done so
// meanwhile, so many concurrent callers cause few syncs.
func (b *background) syncBelow(below sharedlog.LSN) error {
	b.files.Lock()
	defer b.files.Unlock()
	switch {
	case b.durableTail() >= below:
		return nil
	case b.closed:
		return sharedlog.Errorf(sharedlog.KindClosed, "%s", b.log.dir)
	}
	return b.syncFiles()
}

// syncFiles is sync with files held.
func (b *background) syncFiles() error {
	b.mu.Lock()
	w, d := b.written, b.durable
	b.mu.Unlock()
	if w == d {
		return nil
	}
	l := b.log
	l.stats.syncs.Add(2)
	if err := l.appender.Sync(); err != nil {
		return err
	}
	if w.meta != d.meta { // sync its name, too, and the ends of the files before it
		if err := b.syncDir(); err != nil {
			return err
		}
		b.mu.Lock()
		jobs := slices.Clone(b.jobs)
		b.mu.Unlock()
		for _, j := range jobs {
			if j.old == nil {
				continue
			}
			if err := j.old.sync(); err != nil {
				return err
			}
		}
	}
	if err := w.meta.sync(); err != nil {
		return err
	}
	b.mu.Lock()
	b.durable = w
	b.mu.Unlock()
	return nil
}

func (b *background) syncDir() error {
	if err := b.log.opt.FS.SyncDir(b.log.dir); err != nil {
		return segment.IOError("sync", b.log.dir, err)
	}
	return nil
}

// full queues a full segment for the janitor.
func (b *background) full(id segment.ID, old, next *metalog) {
	b.mu.Lock()
	b.jobs = append(b.jobs, fullSegment{id, old, next})
	b.mu.Unlock()
	b.nudge()
}

func (b *background) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *background) janitor() {
	retry := time.NewTimer(retryEvery)
	defer retry.Stop()
	tidy := time.NewTicker(segment.TidyEvery)
	defer tidy.Stop()
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	var looked time.Time
	for {
		work := []func() error{b.closeFull}
		select {
		case <-b.quit:
			return
		case <-b.wake:
		case <-retry.C:
		case <-tidy.C:
			work = append(work, b.log.store.Tidy)
		case <-watch.C:
			b.watch()
			continue
		}
		wait := trimPause - time.Since(looked)
		if wait <= 0 {
			work = append(work, b.deleteTrimmed)
			looked = time.Now()
			wait = 0
		}
		for _, f := range work {
			switch err := f(); {
			case sharedlog.KindOf(err) == sharedlog.KindFull:
				wait = retryEvery
			case err != nil:
				b.fail(err)
				return
			}
		}
		if wait > 0 {
			retry.Reset(wait)
		}
	}
}

// watch checks the free space of the disk.
func (b *background) watch() {
	if b.log.reserve.Look() {
		b.log.sayReadOnly()
	}
}

// sayReadOnly logs that the disk is nearly full and appends are refused, or that they are accepted
// again.
func (l *Log) sayReadOnly() {
	free, reserve := l.reserve.Space()
	if l.reserve.ReadOnly() {
		l.opt.Logger.Warn("the disk is nearly full: appends are refused, trims pass. Make room, or trim", "dir", l.dir, "free", vfs.Size(free), "reserve", vfs.Size(reserve))
		return
	}
	l.opt.Logger.Info("the disk has enough free space again: appends are accepted", "dir", l.dir, "free", vfs.Size(free), "reserve", vfs.Size(reserve))
}

// closeFull closes full segments, the oldest first, and removes the metalog files that are not
// needed any more: their segment is closed, and their successor is durable.
func (b *background) closeFull() error {
	for {
		b.mu.Lock()
		if len(b.jobs) == 0 {
			b.mu.Unlock()
			return nil
		}
		j, meta := b.jobs[0], b.written.meta
		b.mu.Unlock()
		if j.next != nil {
			meta = j.next
		}
		// The order of the segment's groups must be durable before the segment is closed. If a
		// power cut took it, the groups would come back at LSNs that later groups have by then.
		if err := b.syncMeta(meta); err != nil {
			return err
		}
		if err := closeSegment(b.log.store, b.log.index, j.id); err != nil {
			return err
		}
		b.log.reserve.Keep()
		if j.old != nil {
			if err := b.replaced(j.old, j.next); err != nil {
				return err
			}
		}
		b.mu.Lock()
		b.jobs = b.jobs[1:]
		b.mu.Unlock()
		if b.log.opt.Fsync == FsyncNever {
			// Sync once for each segment, so that work that needs durable records (snapshots) makes
			// progress.
			if err := b.sync(); err != nil {
				return err
			}
		}
	}
}

// syncMeta makes a metalog file and its directory entry durable.
func (b *background) syncMeta(m *metalog) error {
	b.files.Lock()
	defer b.files.Unlock()
	return errors.Join(m.sync(), b.syncDir())
}

func (b *background) replaced(old, next *metalog) error {
	b.files.Lock()
	defer b.files.Unlock()
	b.mu.Lock()
	for _, r := range []*reach{&b.durable, &b.written} {
		if r.meta == old { // its file is about to be removed
			*r = reach{meta: next, length: r.length, tail: r.tail}
		}
	}
	b.jobs[0].old = nil // jobs[0] is the current job; the syncer syncs the old files of all jobs
	b.mu.Unlock()
	if err := old.f.Close(); err != nil {
		return segment.IOError("close", old.path, err)
	}
	if err := b.log.opt.FS.Remove(old.path); err != nil {
		return segment.IOError("remove", old.path, err)
	}
	return b.syncDir()
}

// closeSegment closes a segment with its index as footer. It deletes a segment without ordered
// groups.
func closeSegment(store *segment.Store, index indexer, id segment.ID) error {
	footer, used, groups := index.Footer(id)
	if groups == 0 {
		if err := index.Closed(id); err != nil {
			return err
		}
		return store.Delete(id)
	}
	if err := store.CloseSegment(id, used, footer); err != nil {
		return err
	}
	return index.Closed(id)
}

type indexer interface {
	Footer(id segment.ID) (footer []byte, used int64, groups int)
	Closed(id segment.ID) error
}

// deleteTrimmed deletes the segments in which nothing is left. Before that it makes durable the
// trim points (pitfall G8) and the commits that caused them: otherwise a task that restarts after a
// power cut would read from an older commit, below the trim point.
func (b *background) deleteTrimmed() error {
	err := b.deleteOnce()
	if sharedlog.KindOf(err) == sharedlog.KindFull && b.log.reserve.Give() {
		err = b.deleteOnce()
	}
	return err
}

// needed returns the first segment that a recovery needs, trimmed or not: the one whose groups the
// oldest existing metalog file orders. All closed segments are before it, unless a full disk has
// prevented a new metalog file.
func (b *background) needed() segment.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.written.meta
	for _, j := range b.jobs {
		if j.old != nil {
			m = j.old
			break
		}
	}
	return segment.ID{Shard: uint32(b.log.shard), Number: m.segment}
}

func (b *background) deleteOnce() error {
	l := b.log
	ids, err := l.index.Deletable(l.trimPoint)
	if err != nil {
		return err
	}
	needed := b.needed()
	ids = slices.DeleteFunc(ids, func(id segment.ID) bool { return id.Compare(needed) >= 0 })
	if len(ids)+len(b.removed) == 0 {
		return nil
	}
	if err := errors.Join(b.sync(), b.syncDir()); err != nil {
		return err
	}
	crash.Here(crash.TrimSynced)
	for _, id := range ids {
		if err := l.index.Remove(id); err != nil {
			return err
		}
		b.removed = append(b.removed, id)
		crash.Here(crash.TrimUnlisted)
	}
	if err := l.store.Delete(b.removed...); err != nil {
		return err
	}
	b.removed = nil
	crash.Here(crash.TrimDeleted)
	b.watch() // there may be free space again
	return nil
}
