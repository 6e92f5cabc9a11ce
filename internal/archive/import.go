package archive

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"tailrace.dev/tailrace/sharedlog"
)

const (
	// A group of an import has at most about so much.
	groupBytes   = 1 << 20
	groupRecords = 512
	// inFlight is how many groups wait for their answers.
	inFlight = 16
	// progressBytes is the size of a progress record's data.
	progressBytes = 8 + 16
)

// ImportOptions choose how Import appends.
type ImportOptions struct {
	// Name is what the log knows the import by; default: the archive's id. The archive is
	// appended once under a name.
	Name string
	// Force lets records under the tags of jobs be imported.
	Force bool
	// Progress hears how many records are there, now and then; it may be nil.
	Progress func(records, of uint64)
}

// Imported is what Import has done.
type Imported struct {
	Name string
	// Before is how many records an earlier import, which was interrupted, or this archive's
	// complete one, had appended; Records how many this one has.
	Before, Records uint64
	// First and Last are the LSNs of what this one has appended; 0: nothing.
	First, Last sharedlog.LSN
}

// Check reads all of an archive and returns an error if anything is wrong with it, or if an
// import of it would be refused.
func Check(dir string, force bool) (*Manifest, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	records := uint64(0)
	err = eachRecord(dir, m, 0, func(path string, number uint64, r *sharedlog.Record) error {
		records++
		return importable(path, number, r, force)
	})
	if err == nil && records != m.Records {
		err = corrupt(dir+"/"+manifestName, 0, "it says %d records, its files have %d", m.Records, records)
	}
	return m, err
}

// importable refuses a record that no group takes together with a progress record.
func importable(path string, number uint64, r *sharedlog.Record, force bool) error {
	g := sharedlog.Group{Writer: "w", Number: 1, Force: force, Records: []sharedlog.Record{*r, progress("x", "0123456789abcdef", number)}}
	if err := g.Validate(); err != nil {
		return fmt.Errorf("%s, record %d cannot be imported: %w", path, number, err)
	}
	return nil
}

// eachRecord calls f for the records from a number on.
func eachRecord(dir string, m *Manifest, from uint64, f func(path string, number uint64, r *sharedlog.Record) error) error {
	first := uint64(0)
	for i := range m.Files {
		file := &m.Files[i]
		if first+file.Records > from {
			if err := eachOf(dir, i+1, first, file, from, f); err != nil {
				return err
			}
		}
		first += file.Records
	}
	return nil
}

func eachOf(dir string, number int, first uint64, file *File, from uint64, f func(string, uint64, *sharedlog.Record) error) error {
	r, err := openFile(dir, number, first, file)
	if err != nil {
		return err
	}
	defer func() { _ = r.close() }()
	for n := first; ; n++ {
		rec, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n < from {
			continue
		}
		if err := f(r.path, n, &rec); err != nil {
			return err
		}
	}
}

// tag is of the progress records of an import, and the metadata key of who makes it.
func tag(name string) string { return "import/" + name }

// progress is the record that says how many of an archive's records are there: the number,
// little endian, and the archive's id.
func progress(name, id string, records uint64) sharedlog.Record {
	data := append(binary.LittleEndian.AppendUint64(nil, records), id...)
	return sharedlog.Record{Tags: []sharedlog.Tag{sharedlog.Tag(tag(name))}, Data: data}
}

// Import appends the records of an archive, which it checks before, to a log: those that
// an interrupted Import of the same name has not appended. done says, also beside an error,
// what is there.
func Import(ctx context.Context, log sharedlog.Log, dir string, o ImportOptions) (done Imported, err error) {
	m, err := Check(dir, o.Force)
	if err != nil {
		return done, err
	}
	if o.Name == "" {
		o.Name = m.ID
	}
	done.Name = o.Name
	if len(tag(o.Name)) > min(sharedlog.MaxTagBytes, sharedlog.MaxNameBytes) {
		return done, sharedlog.Errorf(sharedlog.KindInvalid, "the name %.20q… of the import is too long", o.Name)
	}
	im := &importer{log: log, o: o, m: m, done: &done}
	if err := im.begin(ctx); err != nil || done.Before == m.Records {
		return done, err
	}
	err = eachRecord(dir, m, done.Before, func(_ string, _ uint64, r *sharedlog.Record) error { return im.add(ctx, r) })
	if err == nil {
		err = im.flush()
	}
	if err := errors.Join(err, im.settle(ctx, 0)); err != nil {
		if errors.Is(err, sharedlog.ErrConditionFailed) {
			err = fmt.Errorf("another import has begun under the name %q: %w", o.Name, err)
		}
		return done, err
	}
	// The newest progress record says it all.
	return done, log.Trim(ctx, sharedlog.Tag(tag(o.Name)), done.Last+1)
}

type importer struct {
	log    sharedlog.Log
	o      ImportOptions
	m      *Manifest
	done   *Imported
	writer *sharedlog.Writer

	group []sharedlog.Record
	tags  int
	bytes int
	given uint64 // records of the archive, up to the end of the newest group

	flying []flight
}

// flight is a group on its way.
type flight struct {
	pending *sharedlog.Pending
	records int
}

// begin makes this import the only one under its name, and finds out what is there.
func (im *importer) begin(ctx context.Context) error {
	key, nonce := tag(im.o.Name), make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	c, err := im.log.Get(ctx, key)
	if err != nil {
		return err
	}
	if c, err = im.log.CompareAndSet(ctx, key, c.Value, nonce); err != nil {
		return fmt.Errorf("begin the import %q (does another one run?): %w", im.o.Name, err)
	}
	e, ok, err := im.log.Last(ctx, sharedlog.Tag(key), c.Place)
	if err != nil {
		return err
	}
	if ok {
		if len(e.Data) != progressBytes || string(e.Data[8:]) != im.m.ID {
			return sharedlog.Errorf(sharedlog.KindInvalid, "another archive was imported as %q: the record at %d with the tag %q says so; use another --name", im.o.Name, e.LSN, key)
		}
		im.done.Before = binary.LittleEndian.Uint64(e.Data)
	}
	im.given = im.done.Before
	im.writer = sharedlog.NewWriter(im.log, fmt.Sprintf("%s#%x", key, nonce), sharedlog.Condition{Key: key, Value: nonce})
	im.writer.Force = im.o.Force
	return nil
}

// add puts a record into the next group.
func (im *importer) add(ctx context.Context, r *sharedlog.Record) error {
	n := len(im.group)
	if n > 0 && (n >= groupRecords || im.bytes+len(r.Data) > groupBytes || im.tags+len(r.Tags)+1 > sharedlog.MaxGroupTags) {
		if err := im.flush(); err != nil {
			return err
		}
		if err := im.settle(ctx, inFlight); err != nil {
			return err
		}
	}
	im.group = append(im.group, *r)
	im.tags += len(r.Tags)
	im.bytes += len(r.Data)
	return nil
}

// flush appends the group.
func (im *importer) flush() error {
	n := len(im.group)
	if n == 0 {
		return nil
	}
	im.given += uint64(n)
	p := im.writer.Append(append(im.group, progress(im.o.Name, im.m.ID, im.given))...)
	im.flying = append(im.flying, flight{p, n})
	im.group, im.tags, im.bytes = nil, 0, 0
	return nil
}

// settle waits until no more than so many groups are on their way.
func (im *importer) settle(ctx context.Context, most int) error {
	for len(im.flying) > most {
		f := im.flying[0]
		lsn, err := f.pending.Wait(ctx)
		if err != nil {
			return err
		}
		im.flying = im.flying[1:]
		if im.done.First == 0 {
			im.done.First = lsn
		}
		im.done.Last = lsn + sharedlog.LSN(f.records) - 1
		im.done.Records += uint64(f.records)
		if im.o.Progress != nil {
			im.o.Progress(im.done.Before+im.done.Records, im.m.Records)
		}
	}
	return nil
}
