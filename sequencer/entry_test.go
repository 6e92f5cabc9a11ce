package sequencer

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

func addrs(list ...string) (out [][]byte) {
	for _, a := range list {
		out = append(out, []byte(a))
	}
	return out
}

// golden has one entry of each kind with its bytes on disk.
var golden = []struct {
	entry Entry
	bytes string
}{
	{Entry{Kind: KindCut, Cut: []Length{{1, 3}, {2, 200}}}, "\x01\x02\x01\x03\x02\xc8\x01"},
	{Entry{Kind: KindChange, Key: "k", Old: []byte("a"), New: []byte("bc")}, "\x02\x01k\x01a\x02bc"},
	{Entry{Kind: KindOpen, Incarnation: 300, Addrs: addrs("a", "b")}, "\x03\xac\x02\x02\x01a\x01b"},
	{Entry{Kind: KindSeal, Shard: 5}, "\x04\x05"},
	{Entry{Kind: KindTrim, Tag: "t", Before: 128}, "\x05\x01t\x80\x01"},
	{Entry{Kind: KindGeneration}, "\x06"},
	{Entry{Kind: KindPlace, Shard: 1, Addrs: addrs("b", "c")}, "\x07\x01\x02\x01b\x01c"},
	{Entry{Kind: KindNode, Node: Node{"n1:7001", NodeDraining}}, "\x08\x07n1:7001\x01"},
	{Entry{Kind: KindRescue, Shard: 3, Length: 1000}, "\x09\x03\xe8\x07"},
	{Entry{Kind: KindForget, Shards: []ShardID{1, 2, 300}, Floor: 77}, "\x0a\x4d\x03\x01\x02\xac\x02"},
	{Entry{Kind: KindLevel, Level: 2}, "\x0b\x02"},
	{Entry{Kind: KindSequencer, Sequencer: Sequencer{ID: 4, Addr: "s4:7000", StoreID: 1 << 21, State: SequencerLearner}}, "\x0c\x04\x07s4:7000\x80\x80\x80\x01\x01"},
}

// Entries on disk outlive the program: their bytes never change.
func TestEntryBytes(t *testing.T) {
	for i, g := range golden {
		require.Equal(t, Kind(i+1), g.entry.Kind, "one of each kind")
		require.Equal(t, []byte(g.bytes), AppendEntry(nil, g.entry), "%v", g.entry.Kind)
		back, err := DecodeEntry([]byte(g.bytes))
		require.NoError(t, err)
		require.Equal(t, g.entry, back)
		for n := range len(g.bytes) {
			_, err := DecodeEntry([]byte(g.bytes[:n]))
			require.ErrorIs(t, err, ErrEncoding, "%v cut to %d of %d bytes", g.entry.Kind, n, len(g.bytes))
		}
		_, err = DecodeEntry([]byte(g.bytes + "\x00"))
		require.ErrorIs(t, err, ErrEncoding)
		require.NotEqual(t, "unknown", g.entry.Kind.String())
		require.NotZero(t, g.entry.Kind.Level())
	}
	require.Len(t, golden, int(KindSequencer))
	for _, bad := range []string{
		"\x00",                         // no kind
		"\x01\x00",                     // an empty cut
		"\x01\x02\x02\x03\x01\x03",     // shards in descending order
		"\x04\x85\x00",                 // a number that is not minimal
		"\x08\x01a\x03",                // an invalid state of a node
		"\x0a\x4d\x02\x02\x02",         // a shard twice
		"\x0a\xff\xff\xff\xff\x01",     // a duplicate shard
		"\x0b\xff\xff\xff\xff\x10",     // a level beyond 32 bits
		"\x0c\x04\x01s\x01\x03",        // an invalid state of a sequencer
		"\x03\x01\xff\xff\xff\xff\x0f", // fewer addresses than it says
	} {
		_, err := DecodeEntry([]byte(bad))
		require.ErrorIs(t, err, ErrEncoding, "%q", bad)
	}
}

// An entry of a newer program is not damage: the error says what to do.
func TestEntryOfANewerProgram(t *testing.T) {
	_, err := DecodeEntry([]byte{byte(KindSequencer) + 1, 1, 2, 3})
	require.ErrorIs(t, err, sharedlog.ErrVersion)
	require.ErrorContains(t, err, "kind 13")
	require.ErrorContains(t, err, "newer program")
	_, err = DecodeEntry(AppendEntry(nil, Entry{Kind: KindLevel, Level: Level + 1}))
	require.ErrorIs(t, err, sharedlog.ErrVersion)
	require.ErrorContains(t, err, "raised to feature level 3")
	s := NewStateAt(Level + 1)
	_, err = RestoreState(s.AppendSnapshot(nil))
	require.ErrorIs(t, err, sharedlog.ErrVersion)
}

// A snapshot of version 1, written by commit aad1d07.
const level1Snapshot = "TRSQ\x01\x00\b\xcc\x01\x01\x02\a\x02\an2:7001\an3:7001\x01\x03\x01\xcc\x01\b\x03\an2:7001\an3:7001\an1:7001\x01\xc8\x01\x00\x00\x01\x01k\x01v\x01\x01t\x05\xf8\xd2k4"

// A program of level 2 reads the snapshots of level 1, and writes the same bytes as long as the
// cluster is at level 1: its peers, and an older program on the same disk, can read them.
func TestSnapshotVersions(t *testing.T) {
	s, err := RestoreState([]byte(level1Snapshot))
	require.NoError(t, err)
	require.Equal(t, uint32(1), s.Level())
	require.Equal(t, sharedlog.First, s.Floor())
	require.Equal(t, uint64(2), s.Opened())
	require.Equal(t, level1Snapshot, string(s.AppendSnapshot(nil)))
	require.Equal(t, Weight{Keys: 1, KeyBytes: 2, Trims: 1, TrimBytes: 1 + pointBytes, Shards: 2}, s.Weight())

	for _, e := range []Entry{
		{Kind: KindLevel, Level: 2},
		{Kind: KindSequencer, Sequencer: Sequencer{ID: 1, Addr: "s1:7000", StoreID: 9}},
		{Kind: KindNode, Node: Node{"n1:7001", NodeDraining}},
		{Kind: KindRescue, Shard: 1, Length: 2},
		{Kind: KindForget, Shards: []ShardID{1}, Floor: 4},
	} {
		require.True(t, s.Apply(e).OK, "%v", e.Kind)
	}
	const level2 = "TRSQ\x02\x00\r\xcc\x01\x01\x02\x02\x04" +
		"\x01\x02\b\x03\an2:7001\an3:7001\an1:7001\x01\xc8\x01\x00\x00\x00" +
		"\x01\x01k\x01v" + "\x01\x01t\x05" + "\x01\an1:7001\x01" + "\x01\x01\as1:7000\t\x00"
	b := s.AppendSnapshot(nil)
	require.Equal(t, level2, string(b[:len(b)-4]))
	back, err := RestoreState(b)
	require.NoError(t, err)
	require.Equal(t, s, back)
	for i := range b {
		damaged := bytes.Clone(b)
		damaged[i] ^= 1
		_, err := RestoreState(damaged)
		require.ErrorIs(t, err, ErrEncoding, "offset %d", i)
	}
}

func FuzzEntry(f *testing.F) {
	for _, g := range golden {
		f.Add([]byte(g.bytes))
	}
	f.Add([]byte{200})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		require.Equal(t, b, AppendEntry(nil, e), "one encoding each")
		s := NewState()
		s.Apply(e)
		back, err := RestoreState(s.AppendSnapshot(nil))
		require.NoError(t, err)
		require.Equal(t, s.AppendSnapshot(nil), back.AppendSnapshot(nil))
	})
}

func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(level1Snapshot))
	s := NewState()
	for _, g := range golden {
		s.Apply(g.entry)
		f.Add(s.AppendSnapshot(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := RestoreState(b); err == nil && !strings.HasPrefix(string(b), "TRSQ\x01") {
			require.Equal(t, b, s.AppendSnapshot(nil), "one encoding each")
		}
		// A fuzzer does not find valid checksums: also try the body with one.
		if len(b) > 10 {
			b = sealSnapshot(b[6 : len(b)-4])
			if s, err := RestoreState(b); err == nil {
				require.Equal(t, b, s.AppendSnapshot(nil), "one encoding each")
			}
		}
	})
}
