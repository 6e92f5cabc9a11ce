package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
)

const (
	manifestName = "MANIFEST"
	magic        = "TLRECORD"
	version      = 1
	headerBytes  = 28
	frameBytes   = 8
	endBytes     = 16
	// maxPayload is longer than any record can be.
	maxPayload = sharedlog.MaxGroupBytes + sharedlog.MaxGroupTags*(sharedlog.MaxTagBytes+2) + 8
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, codec.Castagnoli) }

// Manifest describes the contents of an archive.
type Manifest struct {
	Format  string `json:"format"` // "tailrace records"
	Version int    `json:"version"`
	ID      string `json:"id"`
	// Tags are the exported tags, quoted as in Go.
	Tags []string `json:"tags"`
	// From and Until are the exported range [From, Until).
	From    sharedlog.LSN `json:"from"`
	Until   sharedlog.LSN `json:"until"`
	Records uint64        `json:"records"`
	Bytes   uint64        `json:"bytes"` // of data
	First   sharedlog.LSN `json:"first_lsn"`
	Last    sharedlog.LSN `json:"last_lsn"`
	Files   []File        `json:"files"`
}

// File is a file of records.
type File struct {
	Name    string        `json:"name"`
	Size    int64         `json:"size"`
	Records uint64        `json:"records"`
	First   sharedlog.LSN `json:"first_lsn"`
	Last    sharedlog.LSN `json:"last_lsn"`
	SHA256  string        `json:"sha256"`
}

const format = "tailrace records"

func fileName(number int) string { return fmt.Sprintf("records-%08d", number) }

// id returns the archive's id, which depends on the contents of its files.
func (m *Manifest) id() string {
	h := sha256.New()
	for _, f := range m.Files {
		fmt.Fprintf(h, "%d %s\n", f.Size, f.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func (m *Manifest) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(b, "\nsha256 %x\n", sha256.Sum256(b)), nil
}

// ReadManifest reads the manifest of an archive.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, manifestName)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "%s is not an archive: it has no %s; an interrupted export is named …%s; export again", dir, manifestName, partial)
	}
	if err != nil {
		return nil, err
	}
	line, rest, _ := strings.Cut(string(b), "\n")
	if want := fmt.Sprintf("sha256 %x\n", sha256.Sum256([]byte(line))); rest != want {
		return nil, corrupt(path, int64(len(line))+1, "the checksum of the manifest is %q, it should be %q", strings.TrimSpace(rest), strings.TrimSpace(want))
	}
	m := new(Manifest)
	if err := json.Unmarshal([]byte(line), m); err != nil {
		return nil, corrupt(path, 0, "%v", err)
	}
	switch {
	case m.Format != format || m.Version != version:
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "%s is %q version %d, this program reads %q version %d; use the program that wrote it", path, m.Format, m.Version, format, version)
	case m.ID != m.id():
		return nil, corrupt(path, 0, "the id is %s, by the files it is %s", m.ID, m.id())
	}
	return m, nil
}

func corrupt(path string, offset int64, text string, args ...any) error {
	return sharedlog.Errorf(sharedlog.KindCorrupt, "%s, offset %d: %s; the archive cannot be used: copy it again, or export again", path, offset, fmt.Sprintf(text, args...))
}

func encodeHeader(number uint32, first uint64) []byte {
	b := append(make([]byte, 0, headerBytes), magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, number)
	b = binary.LittleEndian.AppendUint64(b, first)
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

// appendRecord appends a record's frame.
func appendRecord(b []byte, r *sharedlog.Record) []byte {
	at := len(b)
	b = append(b, make([]byte, frameBytes)...)
	b = binary.AppendUvarint(b, uint64(len(r.Tags)))
	for _, t := range r.Tags {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = append(b, t...)
	}
	b = append(b, r.Data...)
	payload := b[at+frameBytes:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[at+4:], checksum(payload))
	return b
}

func encodeEnd(count uint64) []byte {
	b := make([]byte, 8, endBytes)
	b = binary.LittleEndian.AppendUint64(b, count)
	binary.LittleEndian.PutUint32(b[4:], checksum(b[8:]))
	return b
}

// fileReader reads and checks a file of records.
type fileReader struct {
	path   string
	file   *os.File
	in     *bufio.Reader
	hash   hash.Hash
	want   *File
	number int
	first  uint64 // number of the first record
	count  uint64
	offset int64
}

func openFile(dir string, number int, first uint64, want *File) (*fileReader, error) {
	path := filepath.Join(dir, fileName(number))
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, corrupt(path, 0, "the file is missing")
	}
	if err != nil {
		return nil, err
	}
	r := &fileReader{path: path, file: f, hash: sha256.New(), want: want, number: number, first: first}
	r.in = bufio.NewReaderSize(io.TeeReader(f, r.hash), 1<<20)
	if err := r.header(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *fileReader) header() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != r.want.Size || r.want.Name != fileName(r.number) {
		return corrupt(r.path, min(info.Size(), r.want.Size), "it has %d bytes, by the manifest %s has %d", info.Size(), r.want.Name, r.want.Size)
	}
	b := make([]byte, headerBytes)
	if _, err := io.ReadFull(r.in, b); err != nil {
		return r.short(err)
	}
	switch {
	case string(b[:8]) != magic || binary.LittleEndian.Uint32(b[24:]) != checksum(b[:24]):
		return corrupt(r.path, 0, "the header does not check")
	case binary.LittleEndian.Uint32(b[8:]) != version:
		return sharedlog.Errorf(sharedlog.KindVersion, "%s is version %d, this program reads %d; use the program that wrote it", r.path, binary.LittleEndian.Uint32(b[8:]), version)
	case binary.LittleEndian.Uint32(b[12:]) != uint32(r.number) || binary.LittleEndian.Uint64(b[16:]) != r.first:
		return corrupt(r.path, 12, "it is file %d and begins with record %d, in its place is file %d with record %d", binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint64(b[16:]), r.number, r.first)
	}
	r.offset = headerBytes
	return nil
}

func (r *fileReader) short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt(r.path, r.offset, "the file ends too early")
	}
	return fmt.Errorf("read %s at %d: %w", r.path, r.offset, err)
}

// next returns the next record, which belongs to the caller. It returns io.EOF after the whole file
// was read and agrees with the manifest.
func (r *fileReader) next() (sharedlog.Record, error) {
	var h [frameBytes]byte
	if _, err := io.ReadFull(r.in, h[:]); err != nil {
		return sharedlog.Record{}, r.short(err)
	}
	length, sum := binary.LittleEndian.Uint32(h[:]), binary.LittleEndian.Uint32(h[4:])
	if length == 0 {
		return sharedlog.Record{}, r.end(sum)
	}
	if length > maxPayload || int64(length) > r.want.Size-r.offset {
		return sharedlog.Record{}, corrupt(r.path, r.offset, "a record of %d bytes", length)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(r.in, payload); err != nil {
		return sharedlog.Record{}, r.short(err)
	}
	if checksum(payload) != sum {
		return sharedlog.Record{}, corrupt(r.path, r.offset, "record %d does not check", r.first+r.count)
	}
	rec, ok := decodeRecord(payload)
	if !ok {
		return sharedlog.Record{}, corrupt(r.path, r.offset, "record %d makes no sense", r.first+r.count)
	}
	r.offset += frameBytes + int64(length)
	r.count++
	return rec, nil
}

func decodeRecord(b []byte) (rec sharedlog.Record, ok bool) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n == 0 || n > sharedlog.MaxGroupTags {
		return rec, false
	}
	b = b[k:]
	for range n {
		length, k := binary.Uvarint(b)
		if k <= 0 || length > uint64(len(b)-k) {
			return rec, false
		}
		rec.Tags = append(rec.Tags, sharedlog.Tag(b[k:k+int(length)]))
		b = b[k+int(length):]
	}
	rec.Data = b
	return rec, true
}

func (r *fileReader) end(sum uint32) error {
	var b [endBytes - frameBytes]byte
	if _, err := io.ReadFull(r.in, b[:]); err != nil {
		return r.short(err)
	}
	count := binary.LittleEndian.Uint64(b[:])
	if checksum(b[:]) != sum || count != r.count || count != r.want.Records {
		return corrupt(r.path, r.offset, "it ends behind %d records, by its end there are %d, by the manifest %d", r.count, count, r.want.Records)
	}
	if _, err := r.in.ReadByte(); !errors.Is(err, io.EOF) {
		return corrupt(r.path, r.offset+endBytes, "there is something behind its end")
	}
	if got := hex.EncodeToString(r.hash.Sum(nil)); got != r.want.SHA256 {
		return corrupt(r.path, 0, "its SHA-256 is %s, by the manifest it is %s", got, r.want.SHA256)
	}
	return io.EOF
}

func (r *fileReader) close() error { return r.file.Close() }
