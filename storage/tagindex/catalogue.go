package tagindex

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// catalogue knows which closed segments have which tags. Keys, with IDs as two
// big-endian u32:
//
//	's' id              → first LSN, LSN behind the last    a closed segment
//	't' tag 0x00 0x01 id → LSN behind the tag's last group  (0x00 in tags: 0x00 0xff)
//	'u' id tag          → the same                          to delete and to trim by segment
type catalogue struct{ db *pebble.DB }

func openCatalogue(dir string) (*catalogue, error) {
	o := &pebble.Options{
		Logger:             quiet{},
		FormatMajorVersion: pebble.FormatNewest,
		MemTableSize:       4 << 20,
	}
	if dir == "" {
		o.FS = vfs.NewMem()
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("catalogue of tags in %s: %w (it can be deleted: it is made again from the segments)", dir, err)
	}
	return &catalogue{db}, nil
}

// quiet keeps pebble from writing to standard error. What it would say as an
// error it also returns; a fatal report must not be survived.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("catalogue of tags: "+format, args...))
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

func (c *catalogue) add(p *Part) error {
	b := c.db.NewBatch()
	e := p.entry()
	v := binary.AppendUvarint(nil, uint64(e.first))
	v = binary.AppendUvarint(v, uint64(e.end))
	err := b.Set(appendID([]byte{'s'}, p.ID), v, nil)
	p.lastOf(func(tag sharedlog.Tag, end sharedlog.LSN) bool {
		v := binary.AppendUvarint(nil, uint64(end))
		err = errors.Join(err,
			b.Set(appendID(tagPrefix(tag), p.ID), v, nil),
			b.Set(append(appendID([]byte{'u'}, p.ID), tag...), v, nil))
		return true
	})
	return errors.Join(err, b.Commit(pebble.NoSync))
}

// segments returns what is listed.
func (c *catalogue) segments() (map[segment.ID]entry, error) {
	all := make(map[segment.ID]entry)
	err := c.each([]byte{'s'}, func(k, v []byte) error {
		first, n := binary.Uvarint(v)
		if n <= 0 || len(k) != 9 {
			return errors.New("catalogue of tags: malformed entry")
		}
		end, _ := binary.Uvarint(v[n:])
		id := parseID(k[1:])
		all[id] = entry{id, sharedlog.LSN(first), sharedlog.LSN(end)}
		return nil
	})
	return all, err
}

// with appends the segments, ascending, whose last group of tag ends above from.
func (c *catalogue) with(ids []segment.ID, tag sharedlog.Tag, from sharedlog.LSN) ([]segment.ID, error) {
	prefix := tagPrefix(tag)
	err := c.each(prefix, func(k, v []byte) error {
		if end, _ := binary.Uvarint(v); sharedlog.LSN(end) > from {
			ids = append(ids, parseID(k[len(prefix):]))
		}
		return nil
	})
	return ids, err
}

// all reports whether f holds for all tags of a segment, each with the LSN behind
// its last group.
func (c *catalogue) all(id segment.ID, f func(sharedlog.Tag, sharedlog.LSN) bool) (bool, error) {
	prefix := appendID([]byte{'u'}, id)
	ok := true
	err := c.each(prefix, func(k, v []byte) error {
		end, _ := binary.Uvarint(v)
		if !f(sharedlog.Tag(k[len(prefix):]), sharedlog.LSN(end)) {
			ok = false
			return errStop
		}
		return nil
	})
	return ok, err
}

// drop forgets a segment.
func (c *catalogue) drop(id segment.ID) error {
	b := c.db.NewBatch()
	prefix := appendID([]byte{'u'}, id)
	err := c.each(prefix, func(k, _ []byte) error {
		return errors.Join(
			b.Delete(appendID(tagPrefix(sharedlog.Tag(k[len(prefix):])), id), nil),
			b.Delete(k, nil))
	})
	return errors.Join(err, b.Delete(appendID([]byte{'s'}, id), nil), b.Commit(pebble.NoSync))
}

var errStop = errors.New("stop")

// each calls f for every key with a prefix, until f returns an error; errStop
// ends it without one.
func (c *catalogue) each(prefix []byte, f func(k, v []byte) error) (err error) {
	upper := append([]byte(nil), prefix...)
	for i := len(upper) - 1; ; i-- {
		if upper[i]++; upper[i] != 0 {
			upper = upper[:i+1]
			break
		}
	}
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: upper})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if err := f(it.Key(), it.Value()); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}
	return nil
}

func (c *catalogue) close() error { return c.db.Close() }
