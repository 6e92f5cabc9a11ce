package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/sim/fakedisk"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/storage/segment"
)

// patience is how long an operation may take without a fault, in virtual time.
const patience = time.Minute

// Result is the result of a run.
type Result struct {
	Failures []string
	Story    []string
	Counts   map[string]int
}

// World is a run.
type World struct {
	plan  *Plan
	disk  *fakedisk.Disk
	truth *truth
	rng   *rand.Rand // for what happens between lives

	log   sharedlog.Log // of this life
	life  int
	stop  context.Context // ends when the users must stop
	tasks sync.WaitGroup
	least sharedlog.LSN // the lowest tail that the next Open may find
	loss  bool          // a power cut since the last recovery may have lost something

	durable sharedlog.LSN // the last durable LSN in Stats of this life
	needed  *copyOf       // a damaged file without which Open may fail
	inOpen  bool          // the last process ended in Open
	forgot  bool          // this life has already forgotten what was lost
	full    bool          // the disk was full in this life
}

// Run runs a plan in a testing/synctest bubble.
func Run(p *Plan) *Result {
	s := &p.Settings
	w := &World{
		plan: p, truth: newTruth(), rng: rand.New(rand.NewPCG(p.Seed, 16)), least: sharedlog.First, durable: sharedlog.First,
		disk: fakedisk.New(fakedisk.Settings{
			Rand:  rand.New(rand.NewPCG(p.Seed, 17)),
			Write: time.Duration(s.WriteUs) * time.Microsecond, Sync: time.Duration(s.SyncUs) * time.Microsecond,
		}),
	}
	for i := range p.Lives {
		w.life = i
		if w.live(&p.Lives[i]); len(w.truth.failures) > 0 {
			break
		}
	}
	if len(w.truth.failures) == 0 { // check what the last life left
		w.life++
		w.live(&Life{Ms: 10, End: Closed})
	}
	return &Result{w.truth.failures, w.truth.story, w.truth.counts}
}

func (w *World) tell(format string, args ...any) {
	w.truth.locked(func() { w.truth.tell(format, args...) })
}

// fail records a broken promise, unless the process has ended.
func (w *World) fail(promise, format string, args ...any) {
	w.truth.locked(func() {
		if !w.truth.dead {
			w.truth.fail(promise, format, args...)
		}
	})
}

// measure records what is durable, unless the process has ended: a sync after its end counts for
// nothing.
func (w *World) measure() {
	durable := w.log.Stats().Durable
	w.truth.locked(func() {
		if !w.truth.dead {
			w.durable = max(w.durable, durable)
		}
	})
}

func (w *World) options(fs vfs.FS) embedded.Options {
	s := &w.plan.Settings
	return embedded.Options{
		Fsync: s.Fsync, FsyncInterval: time.Duration(s.IntervalMs) * time.Millisecond, SegmentBytes: s.SegmentBytes, CacheBytes: s.CacheBytes,
		ReaderBytes: s.ReaderBytes, QueueBytes: s.QueueBytes, ReserveBytes: s.Reserve, ScrubRate: s.Scrub, FS: fs,
		Logger: slog.New(slog.NewTextHandler(lines{w}, nil)),
	}
}

// lines adds the log's messages to the story.
type lines struct{ w *World }

// Write implements io.Writer.
func (l lines) Write(b []byte) (int, error) {
	l.w.tell("log: %s", strings.TrimSpace(string(b)))
	return len(b), nil
}

const dir = "log"

// live runs one process, from the damage before its start to its end.
func (w *World) live(l *Life) {
	t := w.truth
	w.damage(l.Damage)
	h := w.disk.Open()
	stop, cancel := context.WithCancel(context.Background())
	w.stop = stop
	t.locked(func() { t.dead, t.readings = false, nil })
	fs := w.until(l, h, cancel)
	promised := false
	if l.Full {
		size, _ := h.Stat(filepath.Join(dir, "BALLAST"))
		promised = size >= 4<<20
		if w.plan.Settings.Fsync == embedded.FsyncAlways {
			promised = size >= 4<<20+w.plan.Settings.SegmentBytes
		}
		w.disk.Limit(l.Room)
	}
	log, err := embedded.Open(dir, w.options(fs))
	if l.Full && stop.Err() == nil {
		w.truth.locked(func() { w.truth.counts["opens on a full disk"]++ })
		if sharedlog.KindOf(err) == sharedlog.KindFull && !promised { // another life used up the ballast, or it does not exist yet
			w.tell("the log does not open, and its operator makes room: %v", err)
			w.truth.locked(func() { w.truth.counts["opens on a full disk, refused"]++ })
			w.disk.Limit(-1)
			log, err = embedded.Open(dir, w.options(fs))
		}
	}
	if n := w.needed; n != nil && n.surely && stop.Err() == nil && err == nil {
		w.fail("opens", "life %d: the log opens without %s", w.life+1, n.path)
	}
	if n := w.needed; n != nil && stop.Err() == nil && sharedlog.KindOf(err) == sharedlog.KindCorrupt && strings.Contains(err.Error(), n.named) {
		w.tell("the log does not open, and its operator puts the file back: %v", err)
		w.putBack(h)
		log, err = embedded.Open(dir, w.options(fs))
	}
	if stop.Err() == nil {
		w.needed = nil
	}
	w.log = log
	w.forgot = false
	w.inOpen, w.full = err != nil, l.Full || slices.ContainsFunc(l.Faults, func(f Fault) bool { return f.Full })
	switch {
	case stop.Err() != nil && err != nil: // it ended before the log was open
		w.tell("life %d is %s in Open: %v", w.life+1, l.End, err)
		w.cut(l.End, w.least)
		w.disk.Limit(-1)
		return
	case err != nil:
		w.fail("opens", "life %d: %v", w.life+1, err)
		return
	case stop.Err() == nil:
		w.recovered()
		w.users()
		for _, f := range l.Faults {
			w.tasks.Go(func() { w.happen(f) })
		}
		w.pause(stop, time.Duration(l.Ms)*time.Millisecond)
		w.disk.Hang(false)
		w.disk.Limit(-1)
		if w.life%2 == 0 || l.End == Closed { // other lives end while a fault still has effects
			w.progress()
		}
	}
	w.end(l.End, h, log)
	cancel()
	w.tasks.Wait()
	t.judge()
	w.disk.Hang(false)
	w.disk.Limit(-1)
}

// until returns the disk of a process that ends at a given moment, if that comes.
func (w *World) until(l *Life, h *fakedisk.Handle, ended func()) vfs.FS {
	left := int64(l.Moment.N)
	if left == 0 {
		return h
	}
	var calls atomic.Int64
	return vfs.Inject(h, func(op vfs.Op) error {
		if op.Kind == l.Moment.Kind && calls.Add(1) == left {
			w.truth.locked(func() {
				w.truth.dead = true
				w.truth.counts["ends at a moment"]++
				w.truth.tell("life %d ends before call %d of kind %d: %s", w.life+1, left, op.Kind, op.Path)
			})
			h.Kill()
			ended()
		}
		return nil
	})
}

// end ends the process and records what the next one must find.
func (w *World) end(end End, h *fakedisk.Handle, log *embedded.Log) {
	t := w.truth
	w.measure()
	if end == Closed {
		if err := log.Close(); err != nil {
			w.fail("errors", "Close: %v", err)
		}
	}
	var least sharedlog.LSN
	t.locked(func() {
		t.dead = true
		least = t.seen()
	})
	h.Kill()
	_ = log.Close() // the process is dead; the error does not matter
	if !w.forgot {  // it ended with an open log and before a process could look
		least = w.least
	}
	w.cut(end, least)
}

// cut applies the end of a process to the disk. Everything below least is promised, unless the
// power fails.
func (w *World) cut(end End, least sharedlog.LSN) {
	w.least = least
	if end == Power {
		w.disk.PowerCut()
		if w.plan.Settings.Fsync != embedded.FsyncAlways {
			w.loss, w.least = true, min(least, w.durable)
		}
	}
	w.truth.locked(func() {
		w.truth.counts[string(end)]++
		w.truth.tell("life %d is %s; the next must have everything below %d", w.life+1, end, w.least)
	})
}

// seen returns the end of what a user has seen or was told. Called with mu held.
func (t *truth) seen() (end sharedlog.LSN) {
	end = t.acked
	for lsn := range t.records {
		end = max(end, lsn+1)
	}
	return end
}

// happen causes a fault.
func (w *World) happen(f Fault) {
	for i, d := range []int{f.AtMs, f.ForMs} {
		if !w.pause(w.stop, time.Duration(d)*time.Millisecond) {
			return
		}
		switch {
		case !f.Full:
			w.disk.Hang(i == 0)
		case i == 0:
			w.disk.Limit(f.Room)
		default:
			w.disk.Limit(-1)
		}
		w.tell("fault %+v: %v", f, i == 0)
	}
}

// pause waits and reports whether ctx continues.
func (w *World) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// damage flips a bit of a closed segment, removes it, or damages another file.
func (w *World) damage(kind Damage) {
	if kind == None || w.needed != nil {
		return
	}
	if kind != Flipped && kind != Missing {
		w.harm(kind)
		return
	}
	closed := w.closedSegments(false)
	if len(closed) == 0 {
		return
	}
	path := closed[w.rng.IntN(len(closed))]
	b, err := vfs.ReadFile(w.disk.Open(), path)
	if err != nil {
		w.fail("errors", "%v", err)
		return
	}
	// The order may depend on the segment if it is not on the list, if a process closed it in an
	// Open that did not finish, or if the disk was too full for a metalog file that starts after
	// it.
	if w.inOpen || w.full || !slices.Contains(w.closedSegments(true), path) {
		w.needed = &copyOf{path: path, b: b, named: path, damaged: w.truth.isDamaged()}
	}
	if kind == Missing {
		err = w.disk.Remove(path)
	} else {
		path, _, err = w.disk.Flip(func(p string) bool { return p == path })
	}
	w.truth.locked(func() {
		w.truth.damaged = true
		w.truth.counts["segments "+string(kind)]++
		w.truth.tell("%s: %s %v", kind, path, err)
	})
}

// copyOf is the content of a file before it was damaged.
type copyOf struct {
	path    string
	b       []byte
	named   string // by Open's error
	damaged bool   // something was damaged before
	surely  bool   // Open must fail
}

// harm damages a file that is not a segment: the log has another copy of it, can work without it,
// or must not open.
func (w *World) harm(kind Damage) {
	var paths []string
	prefix := map[Damage]string{List: "LIST-", Ballast: "BALLAST", Metalog: "meta-"}[kind]
	for _, path := range w.disk.Paths() {
		if name := filepath.Base(path); strings.HasPrefix(name, prefix) && !strings.HasSuffix(name, "-new") {
			paths = append(paths, path)
		}
	}
	// If both copies are not there, or there are several metalog files, a process that ended
	// half-way or a power cut may be the cause.
	if len(paths) != map[Damage]int{List: 2, Ballast: 1, Metalog: 1}[kind] || kind == Metalog && (w.inOpen || w.life == 0) {
		return
	}
	path := paths[w.rng.IntN(len(paths))]
	b, err := vfs.ReadFile(w.disk.Open(), path)
	if err == nil && kind == List && w.rng.IntN(2) == 0 {
		_, _, err = w.disk.Flip(func(p string) bool { return p == path })
	} else if err == nil {
		err = w.disk.Remove(path)
	}
	if err != nil {
		w.fail("errors", "%v", err)
	}
	if kind == Metalog {
		w.needed = &copyOf{path: path, b: b, named: filepath.Join(dir, "meta-"), damaged: w.truth.isDamaged(), surely: true}
	}
	w.truth.locked(func() {
		w.truth.counts["damaged: "+string(kind)]++
		w.truth.tell("%s: %s", kind, path)
	})
}

// putBack does what Open's error asks for.
func (w *World) putBack(fs vfs.FS) {
	n := w.needed
	w.needed = nil
	w.disk.Limit(-1)
	err := writeFile(fs, n.path, n.b)
	if err != nil {
		w.fail("errors", "put %s back: %v", n.path, err)
	}
	w.truth.locked(func() {
		w.truth.damaged = n.damaged
		w.truth.counts["files put back"]++
	})
}

// closedSegments returns the paths of the closed segments. It looks at a copy of the disk, because
// opening a store repairs files. listed: only those on the list.
func (w *World) closedSegments(listed bool) (paths []string) {
	fs, copied := w.disk.Open(), vfs.NewMem()
	segments := filepath.Join(dir, "segments")
	err := copied.MkdirAll(segments)
	for _, path := range w.disk.Paths() {
		if err == nil && filepath.Dir(path) == segments && !(listed && filepath.Ext(path) == ".seg") {
			err = copyFile(copied, fs, path)
		}
	}
	if err != nil {
		w.fail("errors", "a copy of the disk: %v", err)
		return nil
	}
	store, err := segment.Open(copied, segments, segment.Options{Listed: true, SegmentSize: w.plan.Settings.SegmentBytes})
	if err != nil {
		w.tell("no segment is damaged: %v", err)
		return nil
	}
	defer store.Close()
	for _, info := range store.Segments() {
		if path := filepath.Join(segments, info.ID.String()+".seg"); info.State == segment.StateClosed && (listed || info.Damage == nil) {
			if _, err := fs.Stat(path); err == nil {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

func copyFile(to, from vfs.FS, path string) error {
	b, err := vfs.ReadFile(from, path)
	if err != nil {
		return err
	}
	return writeFile(to, path, b)
}

func writeFile(fs vfs.FS, path string, b []byte) error {
	f, err := fs.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return errors.Join(f.Sync(), fs.SyncDir(filepath.Dir(path)))
}
