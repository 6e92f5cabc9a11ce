package table

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

var tags = []sharedlog.Tag{"x", "y", "z"}

// metalog draws the events of a metalog with these indices. Trim points rise, and a shard that was
// forgotten is not placed again.
func metalog(t *rapid.T, n int) (events []*logpb.Event) {
	opened, forgotten, place := uint32(0), uint32(0), uint64(1)
	trims := map[string]uint64{}
	for i := range n {
		e := &logpb.Event{Index: uint64(i + 1), Place: place}
		place += uint64(rapid.IntRange(0, 20).Draw(t, "records"))
		shard := func() *logpb.Shard {
			return &logpb.Shard{Id: uint32(rapid.IntRange(int(forgotten)+1, int(opened)).Draw(t, "shard")), Length: uint64(i)}
		}
		kind := rapid.IntRange(0, 9).Draw(t, "kind")
		switch {
		case kind == 0:
			opened++
			e.What = &logpb.Event_Opened{Opened: &logpb.Shard{Id: opened}}
		case kind == 1 && opened > forgotten:
			e.What = &logpb.Event_Sealed{Sealed: shard()}
		case kind == 2 && opened > forgotten:
			e.What = &logpb.Event_Placed{Placed: shard()}
		case kind == 3 && opened > forgotten:
			e.What = &logpb.Event_Rescued{Rescued: shard()}
		case kind == 4 && opened > forgotten:
			forgotten++
			e.What = &logpb.Event_Forgot{Forgot: &logpb.Forgot{Shards: []uint32{forgotten}, Floor: uint64(rapid.IntRange(0, int(place)).Draw(t, "floor"))}}
		case kind == 5:
			node := &logpb.Node{Addr: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node")}
			if rapid.Bool().Draw(t, "drains") {
				node.State = logpb.Node_DRAINING
			}
			e.What = &logpb.Event_Node{Node: node}
		case kind == 6:
			e.What = &logpb.Event_Level{Level: uint32(i)}
		case kind <= 8:
			tag := string(rapid.SampledFrom(tags).Draw(t, "tag"))
			trims[tag] += uint64(rapid.IntRange(0, 10).Draw(t, "trimmed"))
			e.What = &logpb.Event_Trim{Trim: &logpb.TrimPoint{Tag: tag, Before: trims[tag]}}
		default:
			value := rapid.SampledFrom([][]byte{nil, []byte("1"), []byte("2")}).Draw(t, "value")
			e.What = &logpb.Event_Change{Change: &logpb.Pair{Key: rapid.SampledFrom([]string{"j", "k"}).Draw(t, "key"), Value: value}}
		}
		events = append(events, e)
	}
	return events
}

func empty() *Table {
	t := new(Table)
	t.InitEmpty()
	return t
}

// sorted returns a snapshot of the table with its lists in order.
func sorted(t *Table) *logpb.Snapshot {
	s := t.Snapshot()
	slices.SortFunc(s.Nodes, func(a, b *logpb.Node) int { return cmp.Compare(a.Addr, b.Addr) })
	slices.SortFunc(s.Metadata, func(a, b *logpb.Pair) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(s.Trims, func(a, b *logpb.TrimPoint) int { return cmp.Compare(a.Tag, b.Tag) })
	return s
}

// A snapshot stands for the events up to its index: a table that is made of one and of the events
// behind it, of which it gets some twice, is the table of all events.
func TestSnapshotStandsForEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := metalog(t, rapid.IntRange(1, 40).Draw(t, "events"))
		all := empty()
		var snapshots []*logpb.Snapshot
		for _, e := range events {
			if !all.Apply(e) {
				t.Fatalf("event %d is refused", e.Index)
			}
			snapshots = append(snapshots, all.Snapshot())
		}
		for i, s := range snapshots {
			part := new(Table)
			part.Init(s)
			for k, e := range events[max(0, i-2):] {
				if part.Apply(e) != (max(0, i-2)+k > i) {
					t.Fatalf("event %d, behind a snapshot of index %d", e.Index, s.Index)
				}
			}
			if want, got := sorted(all), sorted(part); !proto.Equal(want, got) {
				t.Fatalf("from the snapshot of index %d:\n%v\nall events:\n%v", s.Index, got, want)
			}
		}
	})
}

// Nothing may be deleted that a cursor does not know to be trimmed: Deletable stays where the trim
// points were when all cursors knew them, through events and snapshots.
func TestDeletableWaitsForCursors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := metalog(t, 40)
		all, table := empty(), empty()
		known := map[sharedlog.Tag]sharedlog.LSN{}
		for _, e := range events {
			all.Apply(e)
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0: // missed; a snapshot replaces it, here or later
				continue
			case 1:
				table.Announce()
				for _, tag := range tags {
					known[tag] = table.Lowest(tag)
				}
			}
			if at, _, _ := table.At(); at+1 == e.Index {
				table.Apply(e)
			} else {
				table.Init(all.Snapshot())
			}
			announced := table.Announced(e.Index)
			for _, tag := range tags {
				switch got := table.Deletable(tag); {
				case got > known[tag]:
					t.Fatalf("index %d: %d of tag %q may be deleted, and cursors know %d", e.Index, got, tag, known[tag])
				case announced && got != table.Lowest(tag):
					t.Fatalf("index %d: %d of tag %q may be deleted, and all cursors know %d", e.Index, got, tag, table.Lowest(tag))
				}
			}
		}
	})
}

// What is written to disk is written once, and again if a write fails.
func TestChanged(t *testing.T) {
	table := empty()
	changed := func() bool {
		_, changed := table.Changed()
		return changed
	}
	require.True(t, changed())
	require.False(t, changed())
	table.Reached(7, 70)
	require.False(t, changed(), "the index alone is not worth a write")
	require.False(t, table.Apply(&logpb.Event{Index: 7, What: &logpb.Event_Level{Level: 3}}))
	require.False(t, changed())
	require.True(t, table.Apply(&logpb.Event{Index: 8, What: &logpb.Event_Level{Level: 3}}))
	s, ok := table.Changed()
	require.True(t, ok)
	require.Equal(t, []any{uint64(8), uint64(70), uint32(3)}, []any{s.Index, s.Tail, s.Level})
	table.Unsaved()
	require.True(t, changed())
}

// A table that has received nothing of the metalog says so, and one that has been made of a snapshot
// resumes behind it.
func TestResume(t *testing.T) {
	table := empty()
	_, known := table.Resume()
	require.False(t, known)
	table.Init(&logpb.Snapshot{Index: 5, Tail: 9, Opened: 4, Shards: []*logpb.Shard{{Id: 2, Length: 10, Lost: 3}}})
	after, known := table.Resume()
	require.True(t, known)
	require.EqualValues(t, 5, after)
	require.EqualValues(t, 7, Kept(table.Shard(2)))
	for id, forgotten := range []bool{1: true, 2: false, 3: true, 4: true, 5: false} {
		if id > 0 {
			require.Equal(t, forgotten, table.Forgotten(uint32(id)), fmt.Sprint("shard ", id))
		}
	}
}
