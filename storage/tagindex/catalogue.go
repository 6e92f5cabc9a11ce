package tagindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// Catalogue maps tags to the closed segments that contain them. Keys, with IDs as two big-endian
// u32:
//
//	's' id               → first LSN, LSN after the last      a closed segment
//	't' tag 0x00 0x01 id → LSN after the tag's last record    (0x00 in tags: 0x00 0xff)
//	'u' id tag           → the same                           to delete and to trim by segment
//
// There is no write-ahead log: what a crash loses is rebuilt from the footers, and a write-ahead
// log on a full disk would end the process. The catalogue flushes its memory to a file every
// flushEvery segments and when it is closed, so a start after a crash reads at most that many
// footers.
type Catalogue struct {
	db      *pebble.DB
	ballast *ballast

	// use is held while the database is in use: pebble panics if it is used after Close, and
	// readers may still be active then.
	use    sync.RWMutex
	closed bool

	mu      sync.Mutex
	pending int // segments added or dropped since the start of the last flush

	fs      vfs.FS
	dir     string
	damaged sync.Once // the file damagedName is there
}

// damagedName is a file that says that a file of the catalogue is damaged. The next OpenCatalogue begins an empty one.
const damagedName = "DAMAGED"

// remedy is what mends a damaged catalogue.
const remedy = "(restart the process: it rebuilds the catalogue from the segments)"

// begin keeps the database open until the caller calls c.use.RUnlock.
func (c *Catalogue) begin() error {
	c.use.RLock()
	if c.closed {
		c.use.RUnlock()
		return sharedlog.Errorf(sharedlog.KindClosed, "catalogue of tags")
	}
	return nil
}

// flushEvery is the number of changed segments after which the catalogue is flushed.
const flushEvery = 32

// memTable is the size of changes in bytes that causes an earlier flush.
const memTable = 1 << 20

// closeWait bounds how long Close waits for a flush on a full disk.
const closeWait = time.Second

// OpenCatalogue opens the catalogue in a directory, or in memory if dir is empty. It replaces a
// catalogue that cannot be read by an empty one: all its content is also in the footers.
func OpenCatalogue(dir string) (*Catalogue, error) {
	if dir == "" {
		return openCatalogueOn(vfs.NewMem(), "catalogue", false)
	}
	if _, err := vfs.Default.Stat(vfs.Default.PathJoin(dir, damagedName)); err == nil {
		if err := vfs.Default.RemoveAll(dir); err != nil {
			return nil, err
		}
	}
	c, err := openCatalogueOn(vfs.Default, dir, true)
	if err == nil {
		if _, err = c.segments(); err != nil {
			_ = c.Close() // the first error is more useful
		}
	}
	var no syscall.Errno
	if err != nil && (!errors.As(err, &no) || no == syscall.ENOENT) {
		// Not an error of the system: the files are damaged, or one is missing.
		if err := vfs.Default.RemoveAll(dir); err != nil {
			return nil, err
		}
		c, err = openCatalogueOn(vfs.Default, dir, true)
	}
	return c, err
}

func openCatalogueOn(fsys vfs.FS, dir string, fills bool) (*Catalogue, error) {
	c := &Catalogue{ballast: newBallast(fsys, dir), fs: fsys, dir: dir}
	c.ballast.made = !fills // only a disk gets full
	o := &pebble.Options{
		FS:                 vfs.OnDiskFull(fsys, c.ballast.drop),
		Logger:             quiet{},
		FormatMajorVersion: pebble.FormatNewest,
		MemTableSize:       memTable,
		DisableWAL:         true,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if isFull(err) || pebble.IsCorruptionError(err) {
					time.Sleep(50 * time.Millisecond) // pebble retries immediately, forever
				}
			},
			DataCorruption: c.found,
		},
	}
	var err error
	if c.db, err = pebble.Open(dir, o); err != nil {
		kind := sharedlog.KindOther
		if isFull(err) {
			kind = sharedlog.KindFull
		}
		return nil, sharedlog.Errorf(kind, "catalogue of tags in %s: %w (it can be deleted: it is rebuilt from the segments)", dir, err)
	}
	c.ballast.make()
	return c, nil
}

// found takes note of a damaged file, for which pebble would otherwise end the process, at each start again. What was
// reading returns an error.
func (c *Catalogue) found(pebble.DataCorruptionInfo) {
	c.damaged.Do(func() {
		if f, err := c.fs.Create(c.fs.PathJoin(c.dir, damagedName), vfs.WriteCategoryUnspecified); err == nil {
			_ = f.Close() // it is empty; without it, the next reader of the damaged file finds the damage again
		}
	})
}

// unread returns the error of a read that has failed with err.
func unread(err error) error {
	if pebble.IsCorruptionError(err) {
		return sharedlog.Errorf(sharedlog.KindCorrupt, "catalogue of tags: %w %s", err, remedy)
	}
	return sharedlog.Errorf(sharedlog.KindOther, "catalogue of tags: %w", err)
}

var errMalformed = sharedlog.Errorf(sharedlog.KindCorrupt, "catalogue of tags: malformed entry")

// lsn parses the LSN that an entry begins with, and returns what follows it.
func lsn(v []byte) (sharedlog.LSN, []byte, error) {
	l, n := binary.Uvarint(v)
	if n <= 0 {
		return 0, nil, errMalformed
	}
	return sharedlog.LSN(l), v[n:], nil
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// quiet keeps pebble from writing to standard error. Pebble also returns what it logs as an error.
// Fatalf panics; see there.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	// Pebble calls Fatalf when it cannot write its list of files (and the ballast did not help).
	// Its reference counts are wrong after that, so later answers of the catalogue could be wrong.
	// The process loses nothing but the catalogue.
	panic(fmt.Sprintf("catalogue of tags: "+format, args...)) // invariant: pebble only calls it when it cannot continue (see above)
}

// commit commits the change of one segment.
func (c *Catalogue) commit(b *pebble.Batch) error {
	if err := b.Commit(pebble.NoSync); err != nil {
		return err
	}
	c.mu.Lock()
	c.pending++
	due := c.pending >= flushEvery
	if due {
		c.pending = 0
	}
	c.mu.Unlock()
	if !due {
		return nil
	}
	c.ballast.make()
	_, err := c.db.AsyncFlush()
	return err
}

// sync makes all changes durable.
func (c *Catalogue) sync() error {
	c.mu.Lock()
	none := c.pending == 0
	c.pending = 0
	c.mu.Unlock()
	if none {
		return nil
	}
	return c.db.Flush()
}

// Close flushes and closes the catalogue. On a full disk it gives up the flush: the footers contain
// the same data.
func (c *Catalogue) Close() error {
	c.use.Lock()
	defer c.use.Unlock()
	c.closed = true
	done, err := c.db.AsyncFlush()
	if err == nil {
		select {
		case <-done:
		case <-time.After(closeWait):
		}
	}
	if err = errors.Join(err, c.db.Close()); isFull(err) {
		return nil
	}
	return err
}

func appendID(b []byte, id segment.ID) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, id.Shard), id.Number)
}

func parseID(b []byte) segment.ID {
	return segment.ID{Shard: binary.BigEndian.Uint32(b), Number: binary.BigEndian.Uint32(b[4:])}
}

func tagPrefix(tag sharedlog.Tag) []byte {
	b := append(make([]byte, 0, len(tag)+16), 't')
	for i := range len(tag) {
		b = append(b, tag[i])
		if tag[i] == 0 {
			b = append(b, 0xff)
		}
	}
	return append(b, 0, 1)
}

// add lists a segment, in place of what was listed of it before.
func (c *Catalogue) add(p *Part) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.use.RUnlock()
	b := c.db.NewBatch()
	e := p.entry()
	v := binary.AppendUvarint(nil, uint64(e.first))
	v = binary.AppendUvarint(v, uint64(e.end))
	err := errors.Join(c.forget(b, p.ID), b.Set(appendID([]byte{'s'}, p.ID), v, nil))
	for tag, l := range p.tags {
		v := binary.AppendUvarint(nil, uint64(l.end))
		err = errors.Join(err,
			b.Set(appendID(tagPrefix(tag), p.ID), v, nil),
			b.Set(append(appendID([]byte{'u'}, p.ID), tag...), v, nil))
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return c.commit(b)
}

// segments returns the listed segments.
func (c *Catalogue) segments() (map[segment.ID]entry, error) {
	all := make(map[segment.ID]entry)
	err := c.each([]byte{'s'}, nil, func(k, v []byte) error {
		if len(k) != 9 {
			return errMalformed
		}
		first, v, err := lsn(v)
		if err != nil {
			return err
		}
		end, _, err := lsn(v)
		id := parseID(k[1:])
		all[id] = entry{id: id, first: first, end: end}
		return err
	})
	return all, err
}

// with appends the segments from first to last, ascending, in which the last record of tag is at or
// above an LSN.
func (c *Catalogue) with(ids []segment.ID, tag sharedlog.Tag, first, last segment.ID, from sharedlog.LSN) ([]segment.ID, error) {
	prefix := tagPrefix(tag)
	err := c.each(prefix, appendID(slices.Clone(prefix), first), func(k, v []byte) error {
		id := parseID(k[len(prefix):])
		if id.Compare(last) > 0 {
			return errStop
		}
		end, _, err := lsn(v)
		if end > from {
			ids = append(ids, id)
		}
		return err
	})
	return ids, err
}

// all reports whether f returns true for all tags of a segment; f also gets the LSN after the tag's
// last record.
func (c *Catalogue) all(id segment.ID, f func(sharedlog.Tag, sharedlog.LSN) bool) (bool, error) {
	prefix := appendID([]byte{'u'}, id)
	ok := true
	err := c.each(prefix, nil, func(k, v []byte) error {
		end, _, err := lsn(v)
		if err != nil {
			return err
		}
		if !f(sharedlog.Tag(k[len(prefix):]), end) {
			ok = false
			return errStop
		}
		return nil
	})
	return ok, err
}

// drop removes a segment.
func (c *Catalogue) drop(id segment.ID) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.use.RUnlock()
	b := c.db.NewBatch()
	if err := c.forget(b, id); err != nil {
		return errors.Join(err, b.Close())
	}
	return c.commit(b)
}

// forget adds the removal of a segment to a batch.
func (c *Catalogue) forget(b *pebble.Batch, id segment.ID) error {
	prefix := appendID([]byte{'u'}, id)
	err := c.scan(prefix, nil, func(k, _ []byte) error {
		return errors.Join(
			b.Delete(appendID(tagPrefix(sharedlog.Tag(k[len(prefix):])), id), nil),
			b.Delete(k, nil))
	})
	return errors.Join(err, b.Delete(appendID([]byte{'s'}, id), nil))
}

var errStop = errors.New("stop")

// each calls f for every key with a prefix, starting at the key first if that is not nil, until f
// returns an error; errStop ends it without an error.
func (c *Catalogue) each(prefix, first []byte, f func(k, v []byte) error) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.use.RUnlock()
	return c.scan(prefix, first, f)
}

// scan is each for a caller that has called begin.
func (c *Catalogue) scan(prefix, first []byte, f func(k, v []byte) error) (err error) {
	if first == nil {
		first = prefix
	}
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: first, UpperBound: after(prefix)})
	if err != nil {
		return unread(err)
	}
	defer func() {
		if e := it.Close(); err == nil && e != nil {
			err = unread(e)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		if err := f(it.Key(), it.Value()); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}
	if err := it.Error(); err != nil {
		return unread(err)
	}
	return nil
}

// after returns the lowest key above all keys with a prefix. No prefix here consists of 0xff only.
func after(prefix []byte) []byte {
	upper := slices.Clone(prefix)
	for i := len(upper) - 1; ; i-- {
		if upper[i]++; upper[i] != 0 {
			return upper[:i+1]
		}
	}
}
