package segment

import (
	"slices"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
)

// Appender writes the frames of one shard, one behind the other. It always
// begins a segment of its own: what an earlier process wrote is never appended
// to (pitfall L1), so a torn tail can only be the last thing in a file.
//
// Append is for one goroutine; Sync may be called by another meanwhile.
type Appender struct {
	store *Store
	shard uint32

	// Of the appending goroutine:
	active *file
	limit  int64 // frames of the active segment end at or below this
	size   int64 // what the next segment's limit will be
	number uint32
	next   chan prepared // the next segment, when it is ready; nil if not ordered
	bufs   [][]byte

	mu     sync.Mutex
	dirty  []*file // written since the last Sync
	failed error   // for good

	syncMu  sync.Mutex // before mu
	syncing []*file
}

// prepared is a segment, in use by the appender (Store.acquire), of the given
// size.
type prepared struct {
	seg  *file
	size int64
	err  error
}

// NewAppender begins to write a shard. The first segment is ready when it
// returns, and is one that takes nothing if the disk has room for no more. Errors:
// KindFull and what the file system said.
func (s *Store) NewAppender(shard uint32) (*Appender, error) {
	a := &Appender{store: s, shard: shard, size: s.opt.FirstSize}
	s.mu.Lock()
	a.number = s.highest[shard]
	s.mu.Unlock()
	a.order()
	err := a.roll(0)
	if sharedlog.KindOf(err) == sharedlog.KindFull && !s.opt.Grow {
		// Who appends is told that the disk is full, not who only opens.
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

// Append writes frames, whose first record has the given position in the
// shard's sublog; positions go on from frame to frame. It sets locs[i] to where
// frame i lies. When it returns n, frames[:n] have been written with write(2)
// and the others are not there; n < len(frames) only with an error.
//
// KindFull means that the disk is full; a later Append goes on at the same
// place. Any other error is for good: the state of the file is unknown, and
// every later Append and Sync fails with it.
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
		if n == first { // not even one fits
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

// Room returns how many bytes of frames the active segment can still take. An
// Append of no more than that does not go on to the next one.
func (a *Appender) Room() int64 { return a.limit - a.active.used }

// Roll goes on to the next segment, which will have room for a frame of need
// bytes, so that its first frame can be made to fall on a place of the caller's
// choice. Errors as Append's.
func (a *Appender) Roll(need int) error {
	if err := a.failure(); err != nil {
		return err
	}
	return a.roll(int64(need))
}

// Active returns the segment that the next frame goes to, if it fits. All lower
// numbers of the shard are full: nothing is appended to them any more.
func (a *Appender) Active() ID { return a.active.id }

// write writes bufs at the end of the active segment, up to the offset end. If
// it fails it returns how many bytes were written all the same.
func (a *Appender) write(end int64) (int64, error) {
	written, err := a.active.f.WriteVAt(a.bufs, a.active.used)
	// After the write: noted before it, a Sync that falls in between would take
	// the note away and sync nothing.
	a.touch()
	clear(a.bufs) // or they would hold the callers' memory
	if err != nil {
		err = ioError("write", a.store.path(a.active.id.fileName()), err)
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

// order begins to prepare the next segment. It is not done before half of the
// active one is used, so a shard of a short life has one file.
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

// roll goes on to the next segment, which will have room for a frame of need
// bytes.
func (a *Appender) roll(need int64) error {
	if a.next == nil {
		a.order()
	}
	p := <-a.next
	a.next = nil
	if p.err != nil {
		a.number-- // nothing has that name
		if sharedlog.KindOf(p.err) != sharedlog.KindFull {
			a.fail(p.err)
		}
		return p.err
	}
	if longer := HeaderSize + need; longer > p.size {
		// A group that fits no segment gets one of its size.
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

// touch notes that the active segment has something to sync.
func (a *Appender) touch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.dirty); n > 0 && a.dirty[n-1] == a.active {
		return
	}
	// If nobody ever calls Sync, what has been closed must not pile up.
	a.dirty = slices.DeleteFunc(a.dirty, func(seg *file) bool { return !a.store.unsettled(seg) })
	a.dirty = append(a.dirty, a.active)
}

// Sync makes durable what Append has written before the call. An error is for
// good, because nobody knows what a sync that failed has dropped.
func (a *Appender) Sync() error {
	// One at a time, or the second would find nothing to do and return while
	// the first is still waiting for the disk.
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
			err = ioError("sync", a.store.path(seg.id.fileName()), e)
			a.fail(err)
		}
		a.store.release(seg)
	}
	clear(a.syncing)
	return err
}

// Close ends the appending; nothing is synced. The segments stay open in the
// Store, to be closed with their footers.
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
