package source

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
)

// MaxLine is the longest line that a file may have, in bytes.
const MaxLine = 1 << 20

// Files reads JSON Lines files, one a partition, in parallel.
type Files struct {
	paths []string
	delay int64
	skip  bool
	bad   atomic.Int64
}

// NewFiles returns a source over files. delay is by how many ms an event may come later than a
// younger one. A malformed line is an error of type *event.LineError; with skipBad it is counted
// and skipped.
func NewFiles(paths []string, delay int64, skipBad bool) *Files {
	return &Files{paths: paths, delay: delay, skip: skipBad}
}

// Bad returns how many lines were skipped.
func (s *Files) Bad() int64 { return s.bad.Load() }

// Partitions implements operators.Source.
func (s *Files) Partitions() int { return len(s.paths) }

// Open implements operators.Source.
func (s *Files) Open(p int) (operators.Partition[event.Raw], error) {
	f, err := os.Open(s.paths[p])
	if err != nil {
		return nil, err
	}
	return &filePartition{src: s, path: s.paths[p], f: f, r: bufio.NewReaderSize(f, MaxLine), newest: operators.MinTime}, nil
}

type filePartition struct {
	src    *Files
	path   string
	f      *os.File
	r      *bufio.Reader
	parser event.Parser
	buf    []byte // events of one Read
	offset int64  // of the next line
	line   int64  // its number, from 1, minus one; -1: unknown (after a Seek)
	newest int64
	ended  bool
}

// Read implements operators.Partition.
func (p *filePartition) Read(b *operators.Batch[event.Raw], most int, _ int64) (operators.Status, error) {
	p.buf = p.buf[:0]
	if cap(p.buf) == 0 {
		p.buf = make([]byte, 0, 256<<10)
	}
	for n := 0; n < most; {
		line, err := p.next()
		if errors.Is(err, io.EOF) {
			p.ended = true
			return operators.Status{State: operators.Ended}, nil
		}
		if err != nil {
			return operators.Status{}, err
		}
		if line == nil { // blank
			continue
		}
		from := len(p.buf)
		grown, err := p.parser.Append(p.buf, line)
		if err != nil {
			var bad *event.LineError
			if p.src.skip && errors.As(err, &bad) {
				p.src.bad.Add(1)
				continue
			}
			return operators.Status{}, p.place(err)
		}
		// When buf moves, events that were read earlier keep the old memory.
		p.buf = grown
		raw := event.Raw(p.buf[from:len(p.buf):len(p.buf)])
		t := raw.Time()
		p.newest = max(p.newest, t)
		b.Append(raw, t)
		n++
	}
	return operators.Status{State: operators.More}, nil
}

// next returns the next line, nil for a blank one.
func (p *filePartition) next() ([]byte, error) {
	line, err := p.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, p.place(&event.LineError{Reason: fmt.Sprintf("is longer than %d bytes", MaxLine), Line: p.line})
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case err != nil && len(line) == 0:
		return nil, io.EOF
	}
	p.offset += int64(len(line))
	p.line++
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil, nil
	}
	return line, nil
}

// place adds the file and line to an error.
func (p *filePartition) place(err error) error {
	var bad *event.LineError
	if errors.As(err, &bad) {
		bad.File, bad.Line = p.path, p.line
	}
	return err
}

// Watermark implements operators.Partition.
func (p *filePartition) Watermark() int64 { return watermark(p.ended, p.newest, p.src.delay) }

func watermark(ended bool, newest, delay int64) int64 {
	switch {
	case ended:
		return operators.MaxTime
	case newest == operators.MinTime:
		return operators.MinTime
	}
	return newest - delay
}

// Position implements operators.Partition: offset, line, newest time.
func (p *filePartition) Position(dst []byte) []byte {
	dst = binary.AppendVarint(dst, p.offset)
	dst = binary.AppendVarint(dst, p.line)
	return binary.AppendVarint(dst, p.newest)
}

// Seek implements operators.Partition.
func (p *filePartition) Seek(position []byte) error {
	v, err := numbers(position, 3)
	if err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	size, err := p.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if v[0] > size {
		return fmt.Errorf("%s has %d bytes, and %d had been read: it is not the file that the job began with", p.path, size, v[0])
	}
	if _, err := p.f.Seek(v[0], io.SeekStart); err != nil {
		return err
	}
	p.offset, p.line, p.newest = v[0], v[1], v[2]
	p.r.Reset(p.f)
	return nil
}

// Close implements operators.Partition.
func (p *filePartition) Close() error { return p.f.Close() }

// numbers decodes n varints that fill b.
func numbers(b []byte, n int) ([]int64, error) {
	var v []int64
	for range n {
		x, k := binary.Varint(b)
		if k <= 0 {
			return nil, errors.New("malformed position")
		}
		v, b = append(v, x), b[k:]
	}
	if len(b) > 0 {
		return nil, errors.New("malformed position")
	}
	return v, nil
}
