package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
)

// partition is one file. Invariants:
//
//  1. unread is what was read of the file and not yet parsed; it is at offset.
//  2. Items may point into buf, so that it changes at the beginning of a Read only.
type partition[T any] struct {
	src    *Source[T]
	path   string
	f      *os.File
	buf    []byte
	unread []byte // the end of buf
	offset int64
	line   int64 // lines before offset
	newest int64
	head   uint32 // checksum of the file's first bytes, at most headBytes and none from offset on
	ended  bool
	since  int64 // wall clock (ms) of the first Read that found nothing; 0: the last one found something
}

// headBytes is how much of a file's beginning tells it from others.
const headBytes = 4 << 10

// retryAfter is how many ms a Read of a file that is followed waits for more.
const retryAfter = 10

// Read implements operators.Partition.
func (p *partition[T]) Read(b *item.Batch[T], most int, now int64) (connect.Status, error) {
	if p.ended {
		return connect.Status{State: connect.Ended}, nil // also if the file has grown since
	}
	for n, size := 0, 0; n < most && size < connect.ReadBytes; {
		end := p.src.end(p.unread)
		if end == 0 && n > 0 {
			break // to read more moves what items may point to
		}
		if end == 0 {
			read, err := p.fill()
			if err != nil {
				return connect.Status{}, err
			}
			if read > 0 {
				continue
			}
			if p.src.options.follow {
				return p.wait(now)
			}
			if end = len(p.unread); end == 0 {
				p.ended = true
				return connect.Status{State: connect.Ended}, nil
			}
		}
		p.since = 0
		some, err := p.take(b, p.unread[:end])
		if err != nil {
			return connect.Status{}, err
		}
		if some {
			n++
		}
		size += end
	}
	return connect.Status{State: connect.More}, nil
}

// take parses a line and passes it.
func (p *partition[T]) take(b *item.Batch[T], line []byte) (some bool, err error) {
	if p.offset < headBytes {
		p.head = crc32.Update(p.head, codec.Castagnoli, line[:min(int64(len(line)), headBytes-p.offset)])
	}
	p.offset += int64(len(line))
	p.unread = p.unread[len(line):]
	p.line++
	if len(line) > MaxLine {
		return false, p.tooLong(p.line)
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
	if len(bytes.TrimSpace(line)) == 0 || p.line == 1 && p.src.options.header {
		return false, nil
	}
	item, time, err := p.src.parse(line)
	switch {
	case err == nil:
	case p.src.options.skipBad:
		p.src.bad.Add(1)
		return false, nil
	default:
		return false, &LineError{File: p.path, Line: p.line, Err: err}
	}
	p.newest = max(p.newest, time)
	b.Append(item, time)
	return true, nil
}

// fill reads more of the file, behind what is unread.
func (p *partition[T]) fill() (int, error) {
	if len(p.unread) > MaxLine {
		return 0, p.tooLong(p.line + 1)
	}
	if cap(p.buf) < 2*len(p.unread) || p.buf == nil {
		grown := make([]byte, 0, max(256<<10, 2*len(p.unread)+1))
		p.buf = append(grown, p.unread...)
	} else {
		p.buf = append(p.buf[:0], p.unread...)
	}
	have := len(p.buf)
	n, err := p.f.ReadAt(p.buf[have:cap(p.buf)], p.offset+int64(have))
	p.buf = p.buf[:have+n]
	p.unread = p.buf
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (p *partition[T]) tooLong(line int64) error {
	return &LineError{File: p.path, Line: line, Err: fmt.Errorf("it has more than %d bytes", MaxLine)}
}

// wait says that nothing more is there yet, if it is still the file that it was.
func (p *partition[T]) wait(now int64) (connect.Status, error) {
	at, err := os.Stat(p.path)
	if err != nil {
		return connect.Status{}, fmt.Errorf("a file that is followed: %w", err)
	}
	mine, err := p.f.Stat()
	switch {
	case err != nil:
		return connect.Status{}, err
	case !os.SameFile(at, mine):
		return connect.Status{}, fmt.Errorf("%s was replaced by another file: a source reads the same files for the life of its job; write new lines to new files, and start a job that reads them", p.path)
	case mine.Size() < p.offset:
		return connect.Status{}, p.cut(mine.Size())
	}
	if p.since == 0 {
		p.since = max(now, 1)
	}
	if now-p.since >= p.src.options.idleAfter {
		return connect.Status{State: connect.Idle}, nil
	}
	return connect.Status{State: connect.Waiting, Due: now + retryAfter}, nil
}

func (p *partition[T]) cut(size int64) error {
	return fmt.Errorf("%s has %d bytes, and %d were read of it: it has been replaced or cut", p.path, size, p.offset)
}

// Watermark implements operators.Partition.
func (p *partition[T]) Watermark() int64 {
	switch {
	case p.ended:
		return exec.MaxTime
	case p.newest < exec.MinTime+p.src.options.delay:
		return exec.MinTime
	}
	return p.newest - p.src.options.delay
}

// Position implements operators.Partition:
//
//	1 byte   1: the file has ended, else 0
//	varint   offset, unsigned
//	varint   lines before it, unsigned
//	varint   newest time
//	4 bytes  checksum (Castagnoli, little endian) of the first 4 KiB, as far as they lie below the offset
func (p *partition[T]) Position(dst []byte) []byte {
	if p.ended {
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(p.offset))
	dst = binary.AppendUvarint(dst, uint64(p.line))
	dst = binary.AppendVarint(dst, p.newest)
	return binary.LittleEndian.AppendUint32(dst, p.head)
}

// Seek implements operators.Partition.
func (p *partition[T]) Seek(position []byte) error {
	r := bytes.NewReader(position)
	ended, err := r.ReadByte()
	offset, err2 := binary.ReadUvarint(r)
	line, err3 := binary.ReadUvarint(r)
	newest, err4 := binary.ReadVarint(r)
	if err := errors.Join(err, err2, err3, err4); err != nil || r.Len() != 4 || ended > 1 {
		return fmt.Errorf("%s: a position of %d bytes is none of a file of lines", p.path, len(position))
	}
	p.ended, p.offset, p.line, p.newest = ended == 1, int64(offset), int64(line), newest
	p.head = binary.LittleEndian.Uint32(position[len(position)-4:])
	p.buf, p.unread = nil, nil
	head := make([]byte, min(p.offset, headBytes))
	n, err := p.f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	st, err := p.f.Stat()
	switch {
	case err != nil:
		return err
	case st.Size() < p.offset:
		return p.cut(st.Size())
	case crc32.Checksum(head[:n], codec.Castagnoli) != p.head:
		return fmt.Errorf("%s does not begin with the lines that were read of it: it has been replaced", p.path)
	}
	return nil
}

// Close implements operators.Partition.
func (p *partition[T]) Close() error { return p.f.Close() }
