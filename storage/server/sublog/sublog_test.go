package sublog_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/fetch"
	"tailrace.dev/tailrace/storage/server/sublog"
	"tailrace.dev/tailrace/storage/server/table"
	"tailrace.dev/tailrace/storage/tagindex"
)

// group is a group of a replica.
type group struct {
	position, end uint64
	first         sharedlog.LSN
	effect        bool
	segment       segment.ID
	writer        string
	ordered       bool // it has an outcome
	deleted       bool // with its segment
}

func (g *group) last() sharedlog.LSN { return g.first + sharedlog.LSN(g.end-g.position) }

// replica draws what a replica holds: ordered groups in closed segments, of which some were deleted,
// and in an open one, behind which there may be groups without outcomes.
func replica(t *rapid.T) (*sublog.Sublog, []group) {
	store, err := segment.Open(vfs.NewMem(), "d", segment.Options{SegmentSize: 4 << 10, FirstSize: 1 << 10, Extent: tagindex.Extent})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	index, err := tagindex.Open(store, nil, tagindex.Options{Shard: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, index.Close()) })
	appender, err := store.NewAppender(1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, appender.Close()) })

	var all []group
	position, lsn := uint64(0), sharedlog.LSN(1)
	ordered := rapid.IntRange(0, 40).Draw(t, "ordered groups")
	for i := range ordered + rapid.IntRange(0, 3).Draw(t, "groups without outcome") {
		g := &sharedlog.Group{Writer: rapid.SampledFrom([]string{"v", "w"}).Draw(t, "writer"), Number: uint64(i) + 1}
		for range rapid.IntRange(1, 3).Draw(t, "records") {
			g.Records = append(g.Records, sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: make([]byte, rapid.SampledFrom([]int{10, 400}).Draw(t, "bytes"))})
		}
		var f segment.Frame
		f.Encode(g, false)
		loc := make([]segment.Location, 1)
		_, err := appender.Append(position, []*segment.Frame{&f}, loc)
		require.NoError(t, err)
		lsn += rapid.SampledFrom([]sharedlog.LSN{0, 0, 5}).Draw(t, "records of other shards")
		x := group{
			position: position, end: position + uint64(len(g.Records)), first: lsn, effect: rapid.Bool().Draw(t, "effect"),
			segment: loc[0].ID, writer: g.Writer, ordered: i < ordered,
		}
		if x.ordered {
			if len(all) == 0 || all[len(all)-1].segment != x.segment {
				index.Begin(x.segment)
			}
			index.Add([]tagindex.Added{{Segment: x.segment, Records: g.Records, Group: tagindex.Group{
				Offset: loc[0].Offset, Size: loc[0].Size, Records: uint32(len(g.Records)), Effect: x.effect, Position: position, First: lsn,
			}}})
		}
		all = append(all, x)
		position, lsn = x.end, x.last()
	}
	active := appender.Active()
	for i := range all {
		id := all[i].segment
		last := i+1 == len(all) || all[i+1].segment != id
		if !last || id == active || !all[i].ordered {
			continue
		}
		footer, used, _ := index.Footer(id)
		require.NoError(t, store.CloseSegment(id, used, footer))
		require.NoError(t, index.Closed(id))
		if rapid.IntRange(0, 2).Draw(t, "trimmed") == 0 {
			require.NoError(t, store.Delete(id))
			require.NoError(t, index.Remove(id))
			for k := range all {
				all[k].deleted = all[k].deleted || all[k].segment == id
			}
		}
	}
	return &sublog.Sublog{Node: "node", Shard: 1, Store: store, Index: index}, all
}

// What is said of the positions of a replica is what plain loops over its groups say.
func TestAgainstGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := replica(t)
		length := uint64(0) // of what is ordered
		for _, g := range all {
			if g.ordered {
				length = g.end
			}
		}
		draw := func(what string) uint64 { return rapid.Uint64Range(0, length+2).Draw(t, what) }

		from, to := draw("from"), draw("to")
		var want, got []uint64
		for _, g := range all {
			if !g.deleted && g.end > from && g.position < to {
				want = append(want, g.position)
			}
		}
		require.NoError(t, s.Scan(from, to, func(position uint64, d *segment.Decoded) error {
			got = append(got, position)
			return nil
		}))
		require.Equal(t, want, got, "scan from %d to %d", from, to)

		above := draw("above")
		gap := uint64(0)
		for _, g := range all {
			if g.ordered && g.deleted && g.end > above {
				gap = g.end
			}
		}
		end, err := s.Gap(above, length)
		require.NoError(t, err)
		require.Equal(t, gap, end, "gap above %d", above)

		var readable uint64
		var behind, low sharedlog.LSN
		position := draw("position")
		for _, g := range all {
			if g.ordered && !g.deleted {
				readable, behind = g.end, g.last()
				if g.end <= position {
					low = g.last()
				}
			}
		}
		l, lsn := s.Readable()
		require.Equal(t, []any{readable, behind}, []any{l, lsn})
		require.Equal(t, low, s.End(position, 0), "end at %d", position)
		require.EqualValues(t, 1_000_000, s.End(position, 1_000_000))

		for _, info := range s.Segments() {
			if info.State != segment.StateClosed {
				continue
			}
			for _, writer := range []string{"", "w"} {
				var want, got []string
				for _, g := range all {
					if g.segment == info.ID && (writer == "" || g.writer == writer) {
						want = append(want, fmt.Sprint(g.position, g.first, g.effect, g.writer))
					}
				}
				outcomes, err := s.Outcomes(info, writer)
				require.NoError(t, err)
				for _, o := range outcomes {
					got = append(got, fmt.Sprint(o.Head.Position, o.First, o.Effect, o.Head.Writer))
				}
				require.Equal(t, want, got)
			}
			first, last := length, uint64(0)
			for _, g := range all {
				if g.segment == info.ID {
					first, last = min(first, g.position), g.end
				}
			}
			a, b := s.Positions(info, length)
			require.Equal(t, []uint64{first, last}, []uint64{a, b})
		}
	})
}

// taken is a copy that is being made.
type taken struct {
	groups []fetch.Group
}

func (k *taken) Put(groups []fetch.Group) bool {
	k.groups = append(k.groups, groups...)
	return true
}
func (k *taken) Skip(from, to uint64) bool { return true }
func (k *taken) Stalls() int               { return 0 }
func (k *taken) Lacks(error)               {}

// A copy that is fetched from a replica has its groups with their outcomes, from any position on, and
// reaches the end: what is not there was trimmed, and the copy knows up to which index of the metalog
// the trims are to be followed. A replica that was replaced while it sent does not claim that.
func TestCopyOfAReplica(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := replica(t)
		all = slices.DeleteFunc(all, func(g group) bool { return !g.ordered })
		if len(all) == 0 {
			return
		}
		length := all[len(all)-1].end
		from := all[rapid.IntRange(0, len(all)-1).Draw(t, "from")].position
		var tab table.Table
		tab.Init(&logpb.Snapshot{Index: 77})
		valid := rapid.IntRange(0, 3).Draw(t, "replaced") > 0
		var messages [][]byte
		sender := &fetch.Sender{Log: s, Table: &tab, At: from, Upto: length, Marks: true, Valid: func() bool { return valid }, Send: func(b []byte) error {
			messages = append(messages, slices.Clone(b))
			return nil
		}}
		err := sender.All(false)
		k := &taken{}
		f := &fetch.Fetcher{Node: "copy", Logger: slog.New(slog.DiscardHandler), Target: k, Whole: true, At: from, Shard: &logpb.Shard{Id: 1, Length: length, Addrs: []string{"node"}}}
		for _, m := range messages {
			require.NoError(t, f.Take("node", m))
		}
		var want, got []string
		trimmed := false
		for _, g := range all {
			if g.position < from {
				continue
			}
			if g.deleted {
				if trimmed = true; !valid {
					break
				}
				continue
			}
			want = append(want, fmt.Sprint(g.position, g.first, g.effect, g.writer))
		}
		for _, g := range k.groups {
			got = append(got, fmt.Sprint(g.Position, g.Outcome.First, g.Outcome.Effect, g.Decoded.Group.Writer))
		}
		require.Equal(t, want, got)
		if trimmed && !valid {
			require.ErrorIs(t, err, sharedlog.ErrClosed)
			return
		}
		require.NoError(t, err)
		require.Equal(t, length, f.At)
		require.Equal(t, trimmed, f.Index == 77)
	})
}
