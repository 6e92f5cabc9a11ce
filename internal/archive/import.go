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
	// groupBytes is about the most bytes in a group of an import.
	groupBytes   = 1 << 20
	groupRecords = 512
	// inFlight is the number of groups that may wait for answers.
	inFlight = 16
	// progressBytes is the size of a progress record's data.
	progressBytes = 8 + 16
)

// ImportOptions choose how Import appends.
type ImportOptions struct {
	// Name identifies the import in the log; default: the archive's id. An archive is appended once
	// under a name.
	Name string
	// Force allows records with tags of jobs.
	Force bool
	// Progress is called from time to time with the number of appended records; it may be nil.
	Progress func(records, of uint64)
}

// Imported is the result of Import.
type Imported struct {
	Name string
	// Before is how many records an earlier import had appended, whether it was interrupted or
	// complete; Records is how many this one has appended.
	Before, Records uint64
	// First and Last are the LSNs of the first and last record that this import has appended; 0:
	// none.
	First, Last sharedlog.LSN
}

// Check reads all of an archive and returns an error if it is damaged, or if an import of it would
// be refused.
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

// importable returns an error for a record that does not fit into a group with a progress record.
func importable(path string, number uint64, r *sharedlog.Record, force bool) error {
	g := sharedlog.Group{Writer: "w", Number: 1, Force: force, Records: []sharedlog.Record{*r, progress("x", "0123456789abcdef", number)}}
	if err := g.Validate(); err != nil {
		return fmt.Errorf("%s, record %d cannot be imported: %w", path, number, err)
	}
	return nil
}

// eachRecord calls f for each record, starting at number from.
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

// tag returns the tag of an import's progress records. It is also the metadata key that holds the
// import's nonce.
func tag(name string) string { return "import/" + name }

// progress returns the record that says how many of an archive's records were appended: the number,
// little-endian, and the archive's id.
func progress(name, id string, records uint64) sharedlog.Record {
	data := append(binary.LittleEndian.AppendUint64(nil, records), id...)
	return sharedlog.Record{Tags: []sharedlog.Tag{sharedlog.Tag(tag(name))}, Data: data}
}

// Import checks an archive and appends its records to a log, except those that an interrupted
// Import of the same name has appended. done is valid also beside an error.
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
	if err := errors.Join(err, im.await(ctx, 0)); err != nil {
		if errors.Is(err, sharedlog.ErrConditionFailed) {
			err = fmt.Errorf("another import has started under the name %q: %w", o.Name, err)
		}
		return done, err
	}
	// Only the newest progress record is needed.
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

// flight is a group in flight.
type flight struct {
	pending *sharedlog.Pending
	records int
}

// begin makes this import the only one under its name, and finds out how many records were
// appended.
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

// add adds a record to the next group.
func (im *importer) add(ctx context.Context, r *sharedlog.Record) error {
	n := len(im.group)
	if n > 0 && (n >= groupRecords || im.bytes+len(r.Data) > groupBytes || im.tags+len(r.Tags)+1 > sharedlog.MaxGroupTags) {
		if err := im.flush(); err != nil {
			return err
		}
		if err := im.await(ctx, inFlight); err != nil {
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

// await waits until at most so many groups are in flight.
func (im *importer) await(ctx context.Context, most int) error {
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
