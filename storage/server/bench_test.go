package server

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// recordBytes is the size of the records of the benchmarks.
const recordBytes = 1 << 10

func forBenchmark(o *Options) { o.SegmentBytes, o.FsyncInterval = 64<<20, 0 }

// stream appends n groups of one record, of which so many are in flight.
func (w *writer) stream(n, inFlight int) {
	data := make([]byte, recordBytes)
	acked := 0
	for sent := 1; sent <= n; sent++ {
		w.send(data, "x")
		for sent-acked >= inFlight {
			acked += len(w.answers(1))
		}
	}
	w.answers(n - acked)
}

// BenchmarkAppend appends groups of one record to a shard with two replicas, with so many groups in
// flight: from the client's stream to the primary, to the backup, to the order and back, over
// connections of the loopback, with files in memory. The allocations are those of both nodes, the
// client and the order.
func BenchmarkAppend(b *testing.B) {
	for _, inFlight := range []int{1, 256} {
		b.Run(fmt.Sprintf("in-flight=%d", inFlight), func(b *testing.B) {
			c := newCluster(b, 2, forBenchmark)
			w := c.writer("w", c.open(0, 1), 0)
			b.SetBytes(recordBytes)
			b.ReportAllocs()
			b.ResetTimer()
			w.stream(b.N, inFlight)
		})
	}
}

// nowhere is the end of a session whose messages are counted.
type nowhere struct {
	transport.Stream
	bytes int
}

func (s *nowhere) Context() context.Context { return context.Background() }

func (s *nowhere) Send(m any) error {
	for _, p := range m.(*transport.Raw).Parts {
		s.bytes += len(p)
	}
	return nil
}

// BenchmarkRead reads the records of a tag through a session, up to what the network would get: the
// newest ones, which are in the cache, and, with hardly any cache, from the segments. An operation
// reads 20 000 records.
func BenchmarkRead(b *testing.B) {
	const records = 20_000
	for _, x := range []struct {
		name   string
		memory int64
	}{{"cache", 512 << 20}, {"segments", 1 << 20}} {
		b.Run(x.name, func(b *testing.B) {
			c := newCluster(b, 1, func(o *Options) {
				forBenchmark(o)
				o.Memory = x.memory
			})
			id := c.open(0)
			c.writer("w", id, 0).stream(records, 256)
			c.follows(0)
			n := c.members[0].node
			b.SetBytes(records * recordBytes)
			b.ReportAllocs()
			s := n.sessions.New()
			defer s.Close()
			for cursor := uint64(1); b.Loop(); cursor++ {
				s.Take(&logpb.SessionRequest{
					Close: []uint64{cursor - 1},
					Open:  []*logpb.OpenCursor{{Id: cursor, Shard: id, Tags: []string{"x"}, From: uint64(sharedlog.First), Credit: 2 * records * recordBytes}},
				})
				for to := (nowhere{}); to.bytes < records*recordBytes; {
					full, again := s.Round()
					require.True(b, full || again, "it ends after %d bytes", to.bytes)
					require.NoError(b, s.Flush(&to))
				}
			}
		})
	}
}
