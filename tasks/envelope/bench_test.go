package envelope

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

func benchSections(groups, bytes int) []Section {
	s := make([]Section, groups)
	for i := range s {
		s[i] = Section{Group: i, Items: bytes / 100, Data: make([]byte, bytes)}
	}
	return s
}

func benchMarker(producers int) *Marker {
	m := &Marker{Job: "q5-3f2a", Stage: 1, Instance: 2, Nonce: 0x123456789, Commit: 100_000, Position: 5_000_000, Low: 4_999_000, Watermark: 1_700_000_000_000}
	for i := range 32 {
		m.Owned = append(m.Owned, i)
	}
	for i := range producers {
		m.Seen = append(m.Seen, Seen{Task: uint32(i), Commit: 100_000, Watermark: 1_700_000_000_000})
	}
	m.Positions = []Position{{Name: "partition-0", Value: make([]byte, 8)}}
	return m
}

// TestNothingIsAllocated: writing into a buffer of the right size and reading in place do not
// allocate, record after record.
func TestNothingIsAllocated(t *testing.T) {
	h, secs := Header{Stage: 1, Task: 2, Instance: 3, Commit: 400}, benchSections(64, 256)
	buf := AppendSections(nil, Data, h, secs)[:0]
	m := benchMarker(8)
	marker := m.Append(nil)
	var walk Sections
	var parsed Marker
	require.NoError(t, parsed.Parse(marker))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		data := AppendSections(buf, Data, h, secs)
		if _, err := walk.Open(data); err != nil {
			t.Fatal(err)
		}
		for _, ok := walk.Next(); ok; _, ok = walk.Next() {
			continue
		}
		if err := walk.Err(); err != nil {
			t.Fatal(err)
		}
		if err := parsed.Parse(m.Append(marker[:0])); err != nil {
			t.Fatal(err)
		}
	}))
}

// benchItems are changes of 1,000 keys, every fifth a deletion, every other of the rest an
// insertion.
func benchItems() (b []byte) {
	for i := range 1000 {
		op := ItemPut + byte(i%2)
		if i%5 == 0 {
			op = ItemDelete
		}
		b = append(b, 3, op, 8)
		b = binary.LittleEndian.AppendUint64(b, uint64(i))
		if op != ItemDelete {
			b = append(append(b, 24), make([]byte, 24)...)
		}
	}
	return b
}

// countItems iterates over items as every reader of them does.
func countItems(b []byte) (items, deletions int, err error) {
	for len(b) > 0 {
		it, rest, err := NextItem(b)
		if err != nil {
			return items, deletions, err
		}
		if items++; it.Op == ItemDelete {
			deletions++
		}
		b = rest
	}
	return items, deletions, nil
}

// TestItemsAllocateNothing: the snapshotter and a recovery read every change of state once each.
func TestItemsAllocateNothing(t *testing.T) {
	b := benchItems()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if items, deletions, err := countItems(b); items != 1000 || deletions != 200 || err != nil {
			t.Fatal(items, deletions, err)
		}
	}))
}

func BenchmarkItems(b *testing.B) {
	data := benchItems()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := countItems(data); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/item")
}

func BenchmarkAppendSections(b *testing.B) {
	for _, groups := range []int{1, 64} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			h, secs := Header{Stage: 1, Task: 2, Instance: 3, Commit: 400}, benchSections(groups, 1024)
			buf := AppendSections(nil, Data, h, secs)[:0]
			b.SetBytes(int64(cap(buf)))
			b.ReportAllocs()
			for b.Loop() {
				AppendSections(buf, Data, h, secs)
			}
		})
	}
}

// BenchmarkPack makes records that the log keeps: as Packer does, and in a buffer made for each.
func BenchmarkPack(b *testing.B) {
	for _, groups := range []int{1, 64} {
		h, secs := Header{Stage: 1, Task: 2, Instance: 3, Commit: 400}, benchSections(groups, 1024)
		size := len(AppendSections(nil, Data, h, secs))
		var p Packer
		for _, how := range []struct {
			name string
			pack func() []byte
		}{
			{"packer", func() []byte { return p.Pack(Data, h, secs) }},
			{"append", func() []byte { return AppendSections(make([]byte, 0, size), Data, h, secs) }},
		} {
			b.Run(fmt.Sprintf("%s/groups=%d", how.name, groups), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					kept = how.pack()
				}
			})
		}
	}
}

var kept []byte

func BenchmarkOpenSections(b *testing.B) {
	for _, groups := range []int{1, 64} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			data := AppendSections(nil, Data, Header{Stage: 1, Task: 2, Instance: 3, Commit: 400}, benchSections(groups, 1024))
			var s Sections
			items := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Open(data); err != nil {
					b.Fatal(err)
				}
				for sec, ok := s.Next(); ok; sec, ok = s.Next() {
					items += sec.Items
				}
			}
			require.NotZero(b, items)
		})
	}
}

func BenchmarkMarker(b *testing.B) {
	for _, producers := range []int{2, 16} {
		m := benchMarker(producers)
		data := m.Append(nil)
		b.Run(fmt.Sprintf("append/producers=%d", producers), func(b *testing.B) {
			buf := make([]byte, 0, len(data))
			b.ReportAllocs()
			for b.Loop() {
				m.Append(buf)
			}
		})
		b.Run(fmt.Sprintf("parse/producers=%d", producers), func(b *testing.B) {
			var got Marker
			b.ReportAllocs()
			for b.Loop() {
				if err := got.Parse(data); err != nil {
					b.Fatal(err)
				}
			}
			require.Equal(b, sharedlog.LSN(5_000_000), got.Position)
		})
	}
}
