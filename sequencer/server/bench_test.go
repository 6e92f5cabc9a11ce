package server

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// The cost of one cut for the leader, and its size in the metalog and in the messages to all nodes,
// when every shard has advanced, which is the maximum. One node is primary of one shard and backup
// of two.
func BenchmarkCut(b *testing.B) {
	for _, shards := range []int{1, 2, 4, 8, 16, 64, 256} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) { benchmarkCut(b, shards) })
	}
}

func benchmarkCut(b *testing.B, shards int) {
	r, err := replica.Open(replica.Options{ID: 1, Voters: []uint64{1}, FS: vfs.NewMem(), Dir: "seq", AheadBytes: -1, SnapshotBytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	for !r.Leading() {
		r.Tick()
		if _, err := r.Process(); err != nil {
			b.Fatal(err)
		}
	}
	addr := func(i int) []byte { return fmt.Appendf(nil, "10.0.%d.%d:7001", i/250, i%250) }
	var followers []follower
	for i := range shards {
		entry := sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: uint64(i + 1), Addrs: [][]byte{addr(i), addr((i + 1) % shards), addr((i + 2) % shards)}}
		if err := r.Propose(entry, func(sequencer.Effect, error) {}); err != nil {
			b.Fatal(err)
		}
		followers = append(followers, follower{node: string(addr(i))})
	}
	out, err := r.Process()
	if err != nil {
		b.Fatal(err)
	}
	for i := range out.Effects {
		e := event(&out.Effects[i])
		for f := range followers {
			followers[f].slice(e)
		}
	}
	h := newHistory(1000, 1<<20, r.State().Applied(), sharedlog.First)
	metalog, wire := 0, 0
	length := uint64(1 << 30) // a realistic length
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		length += 10
		for i := range shards {
			if err := r.Report(sequencer.Report{Shard: sequencer.ShardID(i + 1), Incarnation: uint64(i + 1), Length: length}); err != nil {
				b.Fatal(err)
			}
		}
		out, err := r.Process()
		if err != nil {
			b.Fatal(err)
		}
		e := event(&out.Effects[0])
		h.add([]*logpb.Event{e}, []int32{sizeOf(&out.Effects[0])}, e.GetIndex(), r.State().Tail())
		for f := range followers {
			m, err := proto.Marshal(&logpb.FollowReply{Index: e.GetIndex(), Tail: uint64(r.State().Tail()), Events: []*logpb.Event{followers[f].slice(e)}})
			if err != nil {
				b.Fatal(err)
			}
			wire += len(m)
		}
		metalog += len(sequencer.AppendEntry(nil, cutOf(e)))
	}
	b.ReportMetric(float64(metalog)/float64(b.N), "metalog-B/cut")
	b.ReportMetric(float64(wire)/float64(b.N), "sent-B/cut")
}

func cutOf(e *logpb.Event) sequencer.Entry {
	c := sequencer.Entry{Kind: sequencer.KindCut}
	for _, r := range e.GetCut().GetRuns() {
		c.Cut = append(c.Cut, sequencer.Length{Shard: sequencer.ShardID(r.GetShard()), Length: r.GetTo()})
	}
	return c
}
