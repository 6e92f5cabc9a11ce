package logtag

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/sharedlog"
)

// partition is one tag. Invariants:
//
//  1. Every record of the tag from where the source began up to next has been returned, and none at
//     or above next.
//  2. rest is what is left of the reader's last batch. Items may point into it, so that the reader
//     is asked for more at the beginning of a Read only.
type partition[T any] struct {
	src      *Source[T]
	tag      sharedlog.Tag
	ctx      context.Context
	log      sharedlog.Log
	reader   sharedlog.Reader // nil: not open yet
	rest     []sharedlog.Entry
	frontier sharedlog.LSN // everything below is returned when rest is
	next     sharedlog.LSN // 0: the oldest
	sought   bool          // the reader was opened at the oldest record that was left
	until    sharedlog.LSN // 0: no end, or not known yet
	newest   int64
	ended    bool
	since    int64 // wall clock (ms) of the first Read that found nothing; 0: the last one found something
}

// retryAfter is how many ms a Read that has found nothing waits for more.
const retryAfter = 5

// Attach implements operators.Attached.
func (p *partition[T]) Attach(rt exec.Runtime) error {
	t, err := taskOf(rt, "a source", p.tag)
	if err != nil {
		return err
	}
	p.ctx, p.log = t.Log()
	return nil
}

// Read implements operators.Partition.
func (p *partition[T]) Read(b *item.Batch[T], most int, now int64) (connect.Status, error) {
	if p.ended {
		return connect.Status{State: connect.Ended}, nil
	}
	for n, size := 0, 0; n < most && size < connect.ReadBytes; {
		if len(p.rest) == 0 {
			if n > 0 {
				break
			}
			if err := p.fetch(); err != nil {
				return connect.Status{}, err
			}
			if p.ended {
				return connect.Status{State: connect.Ended}, nil
			}
			if len(p.rest) == 0 {
				return p.wait(now), nil
			}
			if p.next < p.rest[0].LSN && p.sought {
				// A commit may fall between the items of a batch, and tells how many of them are
				// done behind the position that the partition had before it: that must be exact.
				p.next, p.sought = p.rest[0].LSN, false
				return connect.Status{State: connect.More}, nil
			}
		}
		p.since = 0
		e := &p.rest[0]
		item, time, err := p.src.parse(e.Data)
		switch {
		case err == nil:
			p.newest = max(p.newest, time)
			b.Append(item, time)
			n++
		case p.src.options.skipBad:
			p.src.bad.Add(1)
		default:
			return connect.Status{}, &RecordError{Tag: p.tag, LSN: e.LSN, Err: err}
		}
		size += len(e.Data) + 1
		p.next = e.LSN + 1
		if p.rest = p.rest[1:]; len(p.rest) == 0 {
			p.next = max(p.next, p.frontier)
		}
	}
	return connect.Status{State: connect.More}, nil
}

// fetch takes the next batch of the reader, if there is one. Only its first call waits, for the
// tail of the log or for what the log needs to open a reader.
func (p *partition[T]) fetch() error {
	if p.src.options.untilTail && p.until == 0 {
		tail, err := p.log.Tail(p.ctx)
		if err != nil {
			return fmt.Errorf("tag %q: %w", p.tag, err)
		}
		p.until = max(tail, p.next, sharedlog.First)
	}
	if p.until > 0 && p.next >= p.until {
		p.ended = true
		return nil
	}
	if p.reader == nil {
		if err := p.open(p.next); err != nil {
			return err
		}
	}
	b, err := p.reader.TryNext()
	switch {
	case errors.Is(err, io.EOF):
		p.ended, p.next = true, p.until
		return nil
	case errors.Is(err, sharedlog.ErrTrimmed) && p.src.options.skipMissing:
		if err := errors.Join(p.reader.Close(), p.open(sharedlog.Oldest)); err != nil {
			return err
		}
		if b, err = p.reader.TryNext(); errors.Is(err, io.EOF) {
			p.ended, p.next = true, p.until
			return nil
		}
	}
	switch {
	case errors.Is(err, sharedlog.ErrTrimmed):
		return fmt.Errorf("tag %q was trimmed before its records from %d on were read; trim a tag behind its readers, or continue behind the gap (logtag.SkipMissing): %w", p.tag, p.next, err)
	case err != nil:
		return fmt.Errorf("tag %q: %w", p.tag, err)
	}
	for len(b.Entries) > 0 && b.Entries[0].LSN < p.next { // of a reader from the oldest
		b.Entries = b.Entries[1:]
	}
	p.rest, p.frontier = b.Entries, b.Frontier
	if len(p.rest) == 0 {
		p.next = max(p.next, b.Frontier)
		p.ended = p.until > 0 && p.next >= p.until
	}
	return nil
}

func (p *partition[T]) open(from sharedlog.LSN) (err error) {
	p.sought = from == sharedlog.Oldest
	p.reader, err = p.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{p.tag}, From: from, Until: p.until, SkipLost: p.src.options.skipMissing})
	if err != nil {
		return fmt.Errorf("tag %q: %w", p.tag, err)
	}
	return nil
}

// wait says that nothing more is there yet.
func (p *partition[T]) wait(now int64) connect.Status {
	if p.since == 0 {
		p.since = max(now, 1)
	}
	if p.until == 0 && now-p.since >= p.src.options.idleAfter {
		return connect.Status{State: connect.Idle}
	}
	return connect.Status{State: connect.Waiting, Due: now + retryAfter}
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

// positionFormat is the first byte of a position.
const positionFormat = 1

// Position implements operators.Partition: a byte for its format, next, until, and newest as a
// zigzag varint.
func (p *partition[T]) Position(dst []byte) []byte {
	dst = append(dst, positionFormat)
	dst = binary.AppendUvarint(dst, uint64(p.next))
	dst = binary.AppendUvarint(dst, uint64(p.until))
	return binary.AppendVarint(dst, p.newest)
}

// Seek implements operators.Partition.
func (p *partition[T]) Seek(position []byte) error {
	if len(position) == 0 || position[0] != positionFormat {
		return fmt.Errorf("position %x is none of a tag of the log: the source was another one", position)
	}
	rest := position[1:]
	var numbers [2]uint64
	for i := range numbers {
		n, k := binary.Uvarint(rest)
		if k <= 0 {
			return fmt.Errorf("position %x is none of a tag of the log", position)
		}
		numbers[i], rest = n, rest[k:]
	}
	newest, k := binary.Varint(rest)
	if k <= 0 || k != len(rest) {
		return fmt.Errorf("position %x is none of a tag of the log", position)
	}
	p.next, p.until, p.newest = sharedlog.LSN(numbers[0]), sharedlog.LSN(numbers[1]), newest
	p.ended = p.until > 0 && p.next >= p.until
	return nil
}

// Close implements operators.Partition.
func (p *partition[T]) Close() error {
	if p.reader == nil {
		return nil
	}
	return p.reader.Close()
}
