package archive

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// partial is the suffix of an archive that is not complete.
const partial = ".partial"

// ExportOptions choose what Export writes.
type ExportOptions struct {
	Tags []sharedlog.Tag
	// From and Until are the exported range [From, Until), which ends at the present tail at most;
	// Until 0 means the tail.
	From, Until sharedlog.LSN
	// FileBytes is the size at which a new file is started; default 256 MiB.
	FileBytes int64
}

// Export writes the records of tags into a new archive. Nothing exists under the archive's name
// until all of it is on disk.
func Export(ctx context.Context, log sharedlog.Log, dir string, o ExportOptions) (_ *Manifest, err error) {
	dir = filepath.Clean(dir)
	if o.FileBytes == 0 {
		o.FileBytes = 256 << 20
	}
	tail, err := log.Tail(ctx)
	switch {
	case err != nil:
		return nil, err
	case o.Until == 0:
		o.Until = tail
	case o.Until > tail:
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "the log ends at %d, and LSN %d does not exist yet: export up to %d at most", tail, o.Until-1, tail)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "%s exists already; export to another directory, or delete it", dir)
	}
	x := &exporter{dir: dir + partial, o: o, m: &Manifest{Format: format, Version: version, From: o.From, Until: o.Until}}
	for _, t := range o.Tags {
		x.m.Tags = append(x.m.Tags, strconv.Quote(string(t)))
	}
	if err := makePartial(x.dir); err != nil {
		return nil, err
	}
	defer func() {
		if x.file != nil {
			err = errors.Join(err, x.file.Close())
		}
	}()
	if err := x.records(ctx, log); err != nil {
		return nil, fmt.Errorf("%w (what was written is in %s)", err, x.dir)
	}
	if err := x.finish(); err != nil {
		return nil, fmt.Errorf("%w (what was written is in %s)", err, x.dir)
	}
	if err := vfs.OS.Rename(x.dir, dir); err != nil {
		return nil, err
	}
	return x.m, vfs.OS.SyncDir(filepath.Dir(dir))
}

// makePartial creates the directory of an archive, and removes what an interrupted export has left
// there.
func makePartial(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, n := range names {
		if n.Name() != manifestName && !strings.HasPrefix(n.Name(), "records-") {
			return sharedlog.Errorf(sharedlog.KindInvalid, "%s was not left by an interrupted export: it holds %s; move it away", dir, n.Name())
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

type exporter struct {
	dir   string
	o     ExportOptions
	m     *Manifest
	file  *os.File
	out   *bufio.Writer
	hash  hash.Hash
	frame []byte
}

// current returns the file that is being written.
func (x *exporter) current() *File { return &x.m.Files[len(x.m.Files)-1] }

func (x *exporter) records(ctx context.Context, log sharedlog.Log) error {
	if x.o.Until <= max(x.o.From, sharedlog.First) {
		return nil
	}
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: x.o.Tags, From: x.o.From, Until: x.o.Until, Credit: 8 << 20})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for {
		b, err := r.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, sharedlog.ErrTrimmed):
			return fmt.Errorf("%w (with --from)", err)
		case err != nil:
			return err
		}
		for i := range b.Entries {
			if err := x.add(&b.Entries[i]); err != nil {
				return err
			}
		}
	}
}

func (x *exporter) add(e *sharedlog.Entry) error {
	if x.file != nil && x.current().Size >= x.o.FileBytes {
		if err := x.endFile(); err != nil {
			return err
		}
	}
	if x.file == nil {
		if err := x.beginFile(); err != nil {
			return err
		}
	}
	x.frame = appendRecord(x.frame[:0], &e.Record)
	f := x.current()
	if f.Records == 0 {
		f.First = e.LSN
	}
	if x.m.Records == 0 {
		x.m.First = e.LSN
	}
	f.Last, x.m.Last = e.LSN, e.LSN
	f.Records++
	x.m.Records++
	x.m.Bytes += uint64(len(e.Data))
	return x.write(x.frame)
}

func (x *exporter) write(b []byte) error {
	x.current().Size += int64(len(b))
	_, err := x.out.Write(b)
	return err
}

func (x *exporter) beginFile() (err error) {
	number := len(x.m.Files) + 1
	x.m.Files = append(x.m.Files, File{Name: fileName(number)})
	if x.file, err = os.OpenFile(filepath.Join(x.dir, fileName(number)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	x.hash = sha256.New()
	x.out = bufio.NewWriterSize(io.MultiWriter(x.file, x.hash), 1<<20)
	return x.write(encodeHeader(uint32(number), x.m.Records))
}

func (x *exporter) endFile() error {
	if err := x.write(encodeEnd(x.current().Records)); err != nil {
		return err
	}
	err := errors.Join(x.out.Flush(), x.file.Sync(), x.file.Close())
	x.file = nil
	x.current().SHA256 = hex.EncodeToString(x.hash.Sum(nil))
	return err
}

// finish ends the last file and writes the manifest.
func (x *exporter) finish() error {
	if x.file != nil {
		if err := x.endFile(); err != nil {
			return err
		}
	}
	x.m.ID = x.m.id()
	b, err := x.m.encode()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(x.dir, manifestName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return vfs.OS.SyncDir(x.dir)
}
