package segment

import (
	"slices"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
)

// Appender writes the frames of one shard in order. It always starts a new segment and never
// appends to the file of an earlier process (pitfall L1), so a torn frame can only be the last one
// in a file.
//
// Append must be called by one goroutine; Sync may be called by another one at the same time.
type Appender struct {
	store *Store
	shard uint32

	// Used by the appending goroutine:
	active *file
	limit  int64 // end of the last frame that fits into the active segment
	size   int64 // limit of the next segment
	number uint32
	next   chan prepared // receives the next segment when it is ready; nil if not requested
	bufs   [][]byte

	mu     sync.Mutex
	dirty  []*file // written since the last Sync
	failed error   // permanent

	syncMu  sync.Mutex // locked before mu
	syncing []*file
}

// prepared is a segment of the given size, acquired for the appender (Store.acquire).
type prepared struct {
	seg  *file
	size int64
	err  error
}

// NewAppender returns an appender for a shard, with its first segment. If the disk is full, that
// segment has space for no frame. Errors: KindFull, and errors of the file system.
func (s *Store) NewAppender(shard uint32) (*Appender, error) {
	a := &Appender{store: s, shard: shard, size: s.opt.FirstSize}
	s.mu.Lock()
	a.number = s.highest[shard]
	s.mu.Unlock()
	a.order()
	err := a.roll(0)
	if sharedlog.KindOf(err) == sharedlog.KindFull && !s.opt.Grow {
		// Opening succeeds on a full disk; the first Append returns the error.
		a.size = HeaderSize
		a.order()
		err = a.roll(0)
		a.size = s.opt.FirstSize
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Append writes frames. The first record of the first frame has the given position in the shard's
// sublog, and positions continue from frame to frame. Append sets locs[i] to the location of frame
// i. It returns the number n of frames that have been written with write(2); the others are not in
// the file. n < len(frames) only with an error.
//
// KindFull means that the disk is full; a later Append continues at the same place. Any other error
// is permanent: the content of the file is unknown, and all later calls of Append and Sync return
// it.
func (a *Appender) Append(position uint64, frames []*Frame, locs []Location) (n int, err error) {
	for n < len(frames) {
		if err := a.failure(); err != nil {
			return n, err
		}
		first := n
		end := a.active.used
		a.bufs = a.bufs[:0]
		for ; n < len(frames); n++ {
			f := frames[n]
			if end+int64(f.size) > a.limit {
				break
			}
			f.finish(position, a.active.salt)
			locs[n] = Location{a.active.id, uint32(end), uint32(f.size), position}
			a.bufs = append(a.bufs, f.bufs...)
			position += uint64(f.records)
			end += int64(f.size)
		}
		if n == first { // not even one frame fits
			if err := a.roll(int64(frames[n].size)); err != nil {
				return n, err
			}
			continue
		}
		written, err := a.write(end)
		if err != nil {
			for n = first; int64(frames[n].size) <= written; n++ {
				written -= int64(frames[n].size)
				a.setUsed(locs[n].End())
			}
			return n, err
		}
	}
	return n, nil
}

// Room returns how many bytes of frames the active segment can still take. An Append of no more
// than that does not change to the next segment.
func (a *Appender) Room() int64 { return a.limit - a.active.used }

// Roll changes to the next segment, with space for a frame of need bytes. The caller uses it to
// make a frame the first one of a segment. Errors as of Append.
func (a *Appender) Roll(need int) error {
	if err := a.failure(); err != nil {
		return err
	}
	return a.roll(int64(need))
}

// Active returns the segment to which the next frame goes if it fits. All segments of the shard
// with lower numbers are full: nothing more is appended to them.
func (a *Appender) Active() ID { return a.active.id }

// write writes bufs at the end of the active segment, up to the offset end. On error it returns how
// many bytes were written.
func (a *Appender) write(end int64) (int64, error) {
	written, err := a.active.f.WriteVAt(a.bufs, a.active.used)
	// Call touch after the write: before it, a Sync in between would clear the mark and sync
	// nothing.
	a.touch()
	clear(a.bufs) // otherwise they keep the callers' memory alive
	if err != nil {
		err = IOError("write", a.store.path(a.active.id.fileName()), err)
		if sharedlog.KindOf(err) != sharedlog.KindFull {
			a.fail(err)
		}
		return int64(written), err
	}
	a.setUsed(end)
	if a.next == nil && end > a.limit/2 {
		a.order()
	}
	return int64(written), nil
}

func (a *Appender) setUsed(end int64) {
	a.store.mu.Lock()
	a.active.used = end
	a.active.size = max(a.active.size, end)
	a.store.mu.Unlock()
}

// order starts to prepare the next segment. The appender calls it when half of the active segment
// is used, so that a short-lived shard has a single file.
func (a *Appender) order() {
	a.number++
	id, size := ID{a.shard, a.number}, a.size
	a.size = min(2*size, a.store.opt.SegmentSize)
	next := make(chan prepared, 1)
	a.next = next
	go func() {
		seg, err := a.store.prepare(id, size)
		next <- prepared{seg, size, err}
	}()
}

// roll changes to the next segment, with space for a frame of need bytes.
func (a *Appender) roll(need int64) error {
	if a.next == nil {
		a.order()
	}
	p := <-a.next
	a.next = nil
	if p.err != nil {
		a.number-- // no file has that name
		if sharedlog.KindOf(p.err) != sharedlog.KindFull {
			a.fail(p.err)
		}
		return p.err
	}
	if longer := HeaderSize + need; longer > p.size {
		// A group that is larger than a segment gets a segment of its size.
		if err := a.store.extend(p.seg, p.seg.id.fileName(), longer); err != nil {
			a.next = make(chan prepared, 1)
			a.next <- p
			return err
		}
		p.size = longer
	}
	if a.active != nil {
		a.store.release(a.active)
	}
	a.active, a.limit = p.seg, p.size
	return nil
}

// touch marks the active segment as not synced.
func (a *Appender) touch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.dirty); n > 0 && a.dirty[n-1] == a.active {
		return
	}
	// Remove closed segments, in case Sync is never called.
	a.dirty = slices.DeleteFunc(a.dirty, func(seg *file) bool { return !a.store.unsettled(seg) })
	a.dirty = append(a.dirty, a.active)
}

// Sync makes everything durable that Append has written before the call. An error is permanent,
// because after a failed sync it is unknown which writes were lost.
func (a *Appender) Sync() error {
	// Serialize: a second caller would find nothing to sync and return while the first one is still
	// waiting for the disk.
	a.syncMu.Lock()
	defer a.syncMu.Unlock()
	a.mu.Lock()
	a.dirty, a.syncing = a.syncing[:0], a.dirty
	err := a.failed
	a.mu.Unlock()
	for _, seg := range a.syncing {
		if err != nil || !a.store.holdUnsettled(seg) {
			continue
		}
		if e := seg.f.Sync(); e != nil {
			err = IOError("sync", a.store.path(seg.id.fileName()), e)
			a.fail(err)
		}
		a.store.release(seg)
	}
	clear(a.syncing)
	return err
}

// Close closes the appender without syncing. The segments stay open in the Store until they are
// closed with their footers.
func (a *Appender) Close() error {
	a.mu.Lock()
	a.dirty = nil
	if a.failed == nil {
		a.failed = sharedlog.Errorf(sharedlog.KindClosed, "appender of shard %d", a.shard)
	}
	a.mu.Unlock()
	var err error
	if a.next != nil {
		if p := <-a.next; p.err == nil {
			a.store.release(p.seg)
			err = a.store.Delete(p.seg.id)
		}
		a.next = nil
	}
	if a.active != nil {
		a.store.release(a.active)
		a.active = nil
	}
	return err
}

func (a *Appender) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		a.failed = err
	}
}

func (a *Appender) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}
