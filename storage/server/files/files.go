// Package files reads and writes the small files that a storage node keeps beside its segments: its
// name, its table, and the replicas' checkpoints. They are replaced atomically and durably.
package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/storage/segment"
)

// Dir is a node's directory.
type Dir struct {
	FS   vfs.FS
	Path string
}

// Read returns the content of a file, nil if the file does not exist.
func (d Dir) Read(name string) ([]byte, error) {
	path := filepath.Join(d.Path, name)
	b, err := vfs.ReadFile(d.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

// Write replaces a file atomically and durably.
func (d Dir) Write(name string, b []byte) error {
	path := filepath.Join(d.Path, name)
	f, err := d.FS.Create(path + "-new")
	if err != nil {
		return segment.IOError("create", path, err)
	}
	_, err = f.WriteAt(b, 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = d.FS.Rename(path+"-new", path)
	}
	if err == nil {
		err = d.FS.SyncDir(d.Path)
	}
	if err != nil {
		return segment.IOError("write", path, err)
	}
	return nil
}

// Remove removes a file, if it exists.
func (d Dir) Remove(name string) error {
	if err := d.FS.Remove(filepath.Join(d.Path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// WriteMessage writes a message after its checksum. If named is set the checksum includes the
// file's name, so that a file under a wrong name is not used; older programs cannot read the file
// then.
func (d Dir) WriteMessage(name string, m proto.Message, named bool) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	crc := crc32.Checksum(b, codec.Castagnoli)
	if named {
		crc = namedCRC(name, b)
	}
	return d.Write(name, append(binary.LittleEndian.AppendUint32(nil, crc), b...))
}

func namedCRC(name string, b []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), codec.Castagnoli), codec.Castagnoli, b)
}

// ReadMessage reads a file of WriteMessage. ok is false if the file does not exist or is damaged.
func (d Dir) ReadMessage(name string, m proto.Message) (ok, damaged bool, _ error) {
	b, err := d.Read(name)
	if err != nil || len(b) < 4 {
		return false, false, err
	}
	crc := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if namedCRC(name, b) != crc && crc32.Checksum(b, codec.Castagnoli) != crc || proto.Unmarshal(b, m) != nil {
		return false, true, nil
	}
	return true, false, nil
}
