package source

import (
	"encoding/binary"
	"fmt"

	"tailrace.dev/tailrace/operators"
)

// sequence is where a partition stands that reads numbered items: the part of operators.Partition
// that all generators have in common.
type sequence struct {
	delay  int64
	next   int64 // the number of the next item
	end    int64 // the number behind the last one
	newest int64
}

func newSequence(delay int64) sequence {
	return sequence{delay: delay, end: operators.MaxTime, newest: operators.MinTime}
}

// Watermark implements operators.Partition.
func (s *sequence) Watermark() int64 { return watermark(s.next >= s.end, s.newest, s.delay) }

// Position implements operators.Partition: the next number, the newest time.
func (s *sequence) Position(dst []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(dst, s.next), s.newest)
}

// Seek implements operators.Partition.
func (s *sequence) Seek(position []byte) error {
	v, err := numbers(position, 2)
	if err != nil {
		return err
	}
	if v[0] < 0 || v[0] > s.end {
		return fmt.Errorf("position %d does not fit a generator of %d events", v[0], s.end)
	}
	s.next, s.newest = v[0], v[1]
	return nil
}

// Close implements operators.Partition.
func (s *sequence) Close() error { return nil }
