package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/sharedlog"
)

// Pebble is the store of one process. Keys:
//
//	job 0x00 stage 0x00 group(u32, big endian) 'm'          → token, position (u64 each, little endian)
//	job 0x00 stage 0x00 group(u32, big endian) 'e' entry    → value
//
// It has no write-ahead log: a write ends with a flush. (A write-ahead log on a full disk would end
// the process.)
type Pebble struct {
	db  *pebble.DB
	dir string
	mu  sync.Mutex // makes a check and its write atomic

	background sync.Mutex
	failed     error // pebble's last background failure, nil once it has recovered
	damaged    error // the first damage that was found in a file
}

// spare is the free disk space that a write requires: pebble ends the process when it cannot write
// its list of files.
const spare = 64 << 20

// OpenPebble opens the store in a directory, which it creates if necessary.
func OpenPebble(dir string) (*Pebble, error) {
	p := &Pebble{dir: dir}
	o := &pebble.Options{
		FS: yieldingFS{vfs.Default}, Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest, DisableWAL: true,
		MemTableSize: 16 << 20, CacheSize: 4 << 20,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				p.inBackground(err)
				if p.damage() != nil {
					time.Sleep(50 * time.Millisecond) // pebble retries immediately, forever
				}
			},
			DataCorruption: p.found,
			FlushEnd: func(i pebble.FlushInfo) {
				if i.Err == nil {
					p.inBackground(nil)
				}
			},
		},
	}
	var err error
	if p.db, err = pebble.Open(dir, o); err != nil {
		return nil, fmt.Errorf("checkpoint store in %s: %w %s", dir, err, remedy)
	}
	return p, nil
}

// remedy is what can be done about a damaged store.
const remedy = "(its state is in the log too, as long as no change log was trimmed: then the directory can be removed)"

// found takes note of damage, which pebble would else end the process for. What was reading returns an error.
func (p *Pebble) found(i pebble.DataCorruptionInfo) {
	p.background.Lock()
	defer p.background.Unlock()
	if p.damaged == nil {
		p.damaged = fmt.Errorf("checkpoint store in %s: %s: %w: put it back from a copy %s", p.dir, filepath.Base(i.Path), ErrDamaged, remedy)
	}
}

func (p *Pebble) damage() error {
	p.background.Lock()
	defer p.background.Unlock()
	return p.damaged
}

// why returns the damage of the store, if there is any, in place of the error of who has found it.
func (p *Pebble) why(err error) error {
	if d := p.damage(); d != nil && err != nil {
		return d
	}
	return err
}

func (p *Pebble) inBackground(err error) {
	p.background.Lock()
	p.failed = err
	p.background.Unlock()
}

// quiet keeps pebble from writing to standard error; its calls return the errors.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("checkpoint store: "+format, args...)) // invariant: pebble calls it only for errors that it cannot survive
}

func (g Group) prefix(kind byte) []byte {
	b := append(append(append(append([]byte(nil), g.Job...), 0), g.Stage...), 0)
	return append(binary.BigEndian.AppendUint32(b, uint32(g.Group)), kind)
}

// meta returns a group's token and position.
func (p *Pebble) meta(g Group) (token, at sharedlog.LSN, err error) {
	v, closer, err := p.db.Get(g.prefix('m'))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, p.why(err)
	}
	defer closer.Close()
	if len(v) != 16 {
		return 0, 0, fmt.Errorf("checkpoint store in %s: the position of %v has %d bytes", p.dir, g, len(v))
	}
	return sharedlog.LSN(binary.LittleEndian.Uint64(v)), sharedlog.LSN(binary.LittleEndian.Uint64(v[8:])), nil
}

func appendMeta(token, at sharedlog.LSN) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(token)), uint64(at))
}

// Begin implements Store. The token need not be durable: all writers that could have a lower one
// end with this process.
func (p *Pebble) Begin(_ context.Context, g Group, token sharedlog.LSN) (sharedlog.LSN, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have, at, err := p.meta(g)
	if err != nil {
		return 0, err
	}
	if have > token {
		w := Write{Group: g, Token: token, From: at}
		return 0, w.check(have, at)
	}
	return at, p.db.Set(g.prefix('m'), appendMeta(token, at), pebble.NoSync)
}

// Clear implements Store.
func (p *Pebble) Clear(_ context.Context, g Group, token sharedlog.LSN) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	have, at, err := p.meta(g)
	if err != nil {
		return err
	}
	w := Write{Group: g, Token: token, From: at}
	if err := w.check(have, at); err != nil {
		return err
	}
	b := p.db.NewBatch()
	defer b.Close()
	if err := b.DeleteRange(g.prefix('e'), g.prefix('e'+1), nil); err != nil {
		return err
	}
	if err := b.Set(g.prefix('m'), appendMeta(token, 0), nil); err != nil {
		return err
	}
	return b.Commit(pebble.NoSync)
}

// Write implements Store.
func (p *Pebble) Write(ctx context.Context, ws []Write) error {
	if err := errors.Join(p.damage(), p.room()); err != nil {
		return err
	}
	for i := range ws {
		if err := p.write(&ws[i]); err != nil {
			return err
		}
		crash.Here(crash.SnapshotGroup)
	}
	crash.Here(crash.SnapshotUnsaved)
	return p.sync(ctx)
}

func (p *Pebble) write(w *Write) error {
	key := w.Group.prefix('e')
	n := len(key)
	var turns yielder
	return w.batches(func(es []Entry, last bool) error {
		b := p.db.NewBatch()
		defer b.Close()
		for _, e := range es {
			key = append(key[:n], e.Key...)
			var err error
			if e.Value == nil {
				err = b.Delete(key, nil)
			} else {
				err = b.Set(key, e.Value, nil)
			}
			if err != nil {
				return err
			}
		}
		turns.work(b.Len(), storeTurn)
		p.mu.Lock()
		defer p.mu.Unlock()
		token, at, err := p.meta(w.Group)
		if err == nil {
			err = w.check(token, at)
		}
		if err == nil && last {
			err = b.Set(w.Group.prefix('m'), appendMeta(w.Token, w.To), nil)
		}
		if err != nil {
			return err
		}
		return b.Commit(pebble.NoSync)
	})
}

// sync makes durable what was written.
func (p *Pebble) sync(ctx context.Context) error {
	flushed, err := p.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("checkpoint store in %s: %w", p.dir, err)
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		p.background.Lock()
		defer p.background.Unlock()
		return fmt.Errorf("checkpoint store in %s: %w", p.dir, errors.Join(p.failed, ctx.Err()))
	}
}

// room returns an error if the disk is nearly full.
func (p *Pebble) room() error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(p.dir, &s); err != nil {
		return fmt.Errorf("checkpoint store in %s: %w", p.dir, err)
	}
	if free := s.Bavail * uint64(s.Bsize); free < spare {
		return fmt.Errorf("checkpoint store in %s: the disk has %d MiB left, it needs %d: free some; no snapshots until then", p.dir, free>>20, spare>>20)
	}
	return nil
}

// Load implements Store.
func (p *Pebble) Load(ctx context.Context, g Group, f func([]Entry) error) (at sharedlog.LSN, err error) {
	if _, at, err = p.meta(g); err != nil {
		return 0, err
	}
	lower := g.prefix('e')
	it, err := p.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: g.prefix('e' + 1)})
	if err != nil {
		return 0, p.why(err)
	}
	defer func() {
		if closed := it.Close(); err == nil { // it is the same as that of the iterator
			err = p.why(closed)
		}
	}()
	l := loader{f: f}
	for it.First(); it.Valid(); it.Next() {
		if err := l.add(it.Key()[len(lower):], it.Value()); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	return at, errors.Join(l.hand(), p.why(it.Error()))
}

// loader collects entries into batches.
type loader struct {
	f     func([]Entry) error
	batch []Entry
	arena []byte
}

// add copies an entry.
func (l *loader) add(k, v []byte) error {
	if len(l.batch) == batchEntries || len(l.arena)+len(k)+len(v) > cap(l.arena) {
		if err := l.hand(); err != nil {
			return err
		}
		if need := max(batchBytes, len(k)+len(v)); cap(l.arena) < need {
			l.arena = make([]byte, 0, need)
		}
	}
	from := len(l.arena)
	l.arena = append(append(l.arena, k...), v...)
	mid := from + len(k)
	l.batch = append(l.batch, Entry{Key: l.arena[from:mid:mid], Value: l.arena[mid:len(l.arena):len(l.arena)]})
	return nil
}

func (l *loader) hand() error {
	if len(l.batch) == 0 {
		return nil
	}
	err := l.f(l.batch)
	l.batch, l.arena = l.batch[:0], l.arena[:0]
	return err
}

// LossWindow implements Store: what a write has flushed is on disk.
func (p *Pebble) LossWindow() time.Duration { return 0 }

// Drop implements Store.
func (p *Pebble) Drop(ctx context.Context, job string) error {
	from, to := append([]byte(job), 0), append([]byte(job), 1)
	p.mu.Lock()
	err := p.db.DeleteRange(from, to, pebble.NoSync)
	p.mu.Unlock()
	return errors.Join(err, p.sync(ctx))
}

// Close implements Store.
func (p *Pebble) Close() error { return p.db.Close() }
