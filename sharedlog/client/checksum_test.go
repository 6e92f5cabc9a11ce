package client

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// summed returns a world of one shard with two records, and a reader of them.
func summed(t *testing.T) (*world, *follower) {
	w := newWorld(t)
	w.open()
	w.cut(record{shard: 1, tags: worldTags[:2], size: 5}, record{shard: 1, tags: worldTags[:1], size: 9})
	w.follow(0, 1, true)
	f := w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	for _, n := range w.nodes {
		n.applied, n.held = 2, 2
	}
	return w, f
}

// A storage node changes one bit of a record or of its place: the reader returns what was appended,
// from another replica. The other nodes may run old or new programs.
func TestChangedRecordIsReadElsewhere(t *testing.T) {
	for bit, end := 0, 1; bit < end; bit++ {
		w, f := summed(t)
		hits := 0
		bad := w.nodes[w.last().shards[0].GetAddrs()[0]]
		bad.garble = func(rows []byte) bool {
			end = 8 * len(rows)
			rows[bit/8] ^= 1 << (bit % 8)
			hits++
			return true
		}
		w.nodes[w.last().shards[0].GetAddrs()[1]].old = bit%2 > 0
		w.rest([]*follower{f})
		require.Equal(t, w.last().tail, f.pos, "bit %d", bit)
		require.Equal(t, 1, hits, "bit %d", bit)
	}
}

// All replicas change a record: the reader ends with an error that names the record and a node.
func TestChangedRecordIsAnError(t *testing.T) {
	w, f := summed(t)
	for _, n := range w.nodes {
		n.garble = func(rows []byte) bool {
			rows[len(rows)-5] ^= 0x10 // the last byte of the second record
			return true
		}
	}
	var err error
	for range 20 {
		if _, err = f.r.TryNext(); err != nil {
			break
		}
		for _, name := range w.names {
			w.nodes[name].exchange(mostRows)
		}
		w.resume()
	}
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, "record 2 of shard 1, as node n")
}

// A reader lives long and a record is changed on its way from time to time: the reader continues as
// long as some replica sends the record as it was appended.
func TestChangedNowAndThen(t *testing.T) {
	w, f := summed(t)
	changes := 0
	for range 12 * len(w.names) {
		w.cut(record{shard: 1, tags: worldTags[:1], size: 9})
		hit := false
		for _, n := range w.nodes {
			n.garble = func(rows []byte) bool {
				if hit {
					return false
				}
				hit, rows[1] = true, rows[1]^1
				changes++
				return true
			}
		}
		w.rest([]*follower{f})
		require.Equal(t, w.last().tail, f.pos)
	}
	require.Equal(t, 12*len(w.names), changes)
}

// The last record of a tag is verified, too.
func TestLastIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		c.open()
		c.shards[0].addr = "other"
		c.mu.Lock()
		c.event(&logpb.Event{What: &logpb.Event_Placed{Placed: &logpb.Shard{Id: 1, Addrs: []string{"node001", "other"}, Opened: 1}}})
		c.mu.Unlock()
		l := c.connect(Options{})
		defer l.Close()
		c.net.Handle("seq", "sequencer/get", func(st transport.Stream) error {
			if err := st.Recv(new(logpb.GetRequest)); err != nil {
				return err
			}
			return st.Send(&logpb.GetReply{Place: 100, Opened: 1})
		})
		sum, _ := wire.Compute(&sharedlog.Record{Tags: []sharedlog.Tag{"x", "y"}, Data: []byte("data")}, nil)
		reply := func(data string, checksum *uint32) *logpb.LastReply {
			return &logpb.LastReply{Found: true, Lsn: 10, Tags: []string{"x", "y"}, Data: []byte(data), Checksum: checksum}
		}
		var mu sync.Mutex
		replies := map[string]*logpb.LastReply{}
		for _, addr := range []string{"node001", "other"} {
			c.net.Handle(addr, "storage/last", func(st transport.Stream) error {
				if err := st.Recv(new(logpb.LastRequest)); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				return st.Send(replies[addr])
			})
		}
		at := proto.Uint32(sum.At(10))
		for _, x := range []struct {
			first, second *logpb.LastReply
			want          string
		}{
			{reply("data", at), nil, "data"},
			{reply("Data", at), reply("data", at), "data"},
			{reply("data", proto.Uint32(sum.At(11))), reply("data", at), "data"},
			{reply("Data", at), reply("data", nil), "data"}, // a node of feature level 1
			{reply("old", nil), nil, "old"},                 // a record without a checksum
			{reply("Data", at), reply("dat", at), ""},
		} {
			mu.Lock()
			replies["node001"], replies["other"] = x.first, x.second
			mu.Unlock()
			e, ok, err := l.Last(t.Context(), "x", 1000)
			if x.want == "" {
				require.ErrorIs(t, err, sharedlog.ErrCorrupt)
				require.ErrorContains(t, err, "record 10 of shard 1")
				continue
			}
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, x.want, string(e.Data))
		}
	})
}

// Groups have checksums from feature level 2 on: below it, some storage nodes may not be able to
// read them.
func TestChecksumsFollowTheLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		c.open()
		var mu sync.Mutex
		var flags []byte
		c.net.Handle("node001", "storage/append", func(st transport.Stream) error {
			if err := st.Recv(new(logpb.AppendHello)); err != nil {
				return err
			}
			for {
				var m transport.Raw
				if err := st.Recv(&m); err != nil {
					return nil
				}
				var s wire.Submission
				if _, err := s.Take(m.Bytes); err != nil {
					return err
				}
				mu.Lock()
				flags = append(flags, s.Body.Bytes[0]&^1)
				n := len(flags)
				mu.Unlock()
				a := wire.Answer{Sequence: s.Sequence, First: sharedlog.LSN(n)}
				if err := st.Send(&transport.Raw{Parts: [][]byte{a.Append(nil)}}); err != nil {
					return nil
				}
			}
		})
		l := c.connect(Options{})
		defer l.Close()
		w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
		add := func() {
			_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte("d")}).Wait(t.Context())
			require.NoError(t, err)
		}
		add()
		c.mu.Lock()
		c.event(&logpb.Event{What: &logpb.Event_Level{Level: 2}})
		c.mu.Unlock()
		for l.shards.level.Load() < 2 {
			elapse(1)
		}
		add()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []byte{0, 2}, flags)
	})
}

// BenchmarkReceive measures how a reader's process handles a message of a storage node, with
// checksums and without.
func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		for _, summed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/sums=%v", size, summed), func(b *testing.B) {
				const n = 16
				r := sharedlog.Record{Tags: []sharedlog.Tag{"job/stage/17"}, Data: make([]byte, size)}
				sum, _ := wire.Compute(&r, nil)
				var entries []sharedlog.Entry
				var sums []wire.Sum
				for lsn := range sharedlog.LSN(n) {
					entries = append(entries, sharedlog.Entry{LSN: lsn + 1, Record: r})
					if summed {
						sums = append(sums, sum)
					}
				}
				var message wire.SessionMessage
				message.Batch(1, 100, 1, entries, sums)
				m := slices.Concat(message.Take()...)
				l := new(Log)
				l.reading = reading{l: l}
				p := &part{r: &reader{l: l, ready: make(chan struct{}, 1)}, id: 1}
				s := &session{g: &l.reading, cursors: map[uint64]*part{1: p}}
				b.ReportAllocs()
				for b.Loop() {
					if err := s.receive(m); err != nil {
						b.Fatal(err)
					}
					clear(p.queue)
					p.queue = p.queue[:0]
				}
			})
		}
	}
}
