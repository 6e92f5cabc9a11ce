package tagindex

import (
	"fmt"
	"testing"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// commit returns a group like a task's commit: one record for each of n tags.
func commit(n int) Added {
	a := Added{Segment: segment.ID{Shard: 1, Number: 1}, Group: Group{Size: 100, Records: uint32(n), Effect: true}}
	for i := range n {
		a.Records = append(a.Records, sharedlog.Record{Tags: []sharedlog.Tag{sharedlog.Tag(fmt.Sprintf("X/job/bids/%d", i))}})
	}
	return a
}

// BenchmarkAdd measures a group: one lookup and one entry for each of its tags; segments of 10 000
// groups.
func BenchmarkAdd(b *testing.B) {
	for _, tags := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("tags=%d", tags), func(b *testing.B) {
			a := commit(tags)
			p := NewPart(a.Segment)
			b.ReportAllocs()
			for b.Loop() {
				if p.Len() == 10_000 {
					p = NewPart(a.Segment)
				}
				p.Add(a.Group, a.Records)
				a.Group.First += sharedlog.LSN(tags)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(tags), "ns/entry")
		})
	}
}

// BenchmarkFooter encodes and decodes a segment of 10 000 groups under 64 tags,
// 16 a group.
func BenchmarkFooter(b *testing.B) {
	p := NewPart(segment.ID{Shard: 1, Number: 1})
	a := commit(64)
	g := Group{Size: 100, Records: 16, Effect: true, First: 1}
	for i := range 10_000 {
		from := i % 4 * 16
		p.Add(g, a.Records[from:from+16])
		g.Offset, g.Position, g.First = g.Offset+100, g.Position+16, g.First+20
	}
	footer := p.AppendFooter(nil)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			footer = p.AppendFooter(footer[:0])
		}
		b.ReportMetric(float64(len(footer))/160_000, "B/entry")
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := ParseFooter(p.ID, footer); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpen opens the index of a log of 1 000 closed segments (64 GB) with 200
// tags each.
func BenchmarkOpen(b *testing.B) {
	const segments = 1000
	dir := b.TempDir()
	s := &store{footers: map[segment.ID][]byte{}}
	x, err := Open(s, nil, Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	a := commit(200)
	a.Group.First = 1
	for i := range uint32(segments) {
		a.Segment = segment.ID{Shard: 1, Number: i + 1}
		x.Begin(a.Segment)
		x.Add([]Added{a})
		a.Group.First = a.Group.End()
		closeOne(b, x, s, a.Segment)
	}
	if err := x.Close(); err != nil {
		b.Fatal(err)
	}
	there := s.closed()
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			x, err := Open(s, there, Options{Dir: dir})
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := x.Close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		b.ReportMetric(float64(s.reads), "footers-read")
	})
	b.Run("last", func(b *testing.B) {
		x, err := Open(s, there, Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, ok, err := x.Last("X/job/bids/7", 1<<60); err != nil || !ok {
				b.Fatal(ok, err)
			}
		}
		if err := x.Close(); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("rebuilt", func(b *testing.B) {
		for b.Loop() {
			x, err := Open(s, there, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := x.Close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}
