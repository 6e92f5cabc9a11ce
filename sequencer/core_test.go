package sequencer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
)

func drawEntry(t *rapid.T) Entry {
	text := rapid.SampledFrom([]string{"", "a", "bb"})
	switch k := Kind(rapid.IntRange(int(KindCut), int(KindSequencer)).Draw(t, "kind")); k {
	case KindCut:
		e := Entry{Kind: k}
		for id := range ShardID(4) {
			if id == 0 || rapid.Bool().Draw(t, "advanced") {
				e.Cut = append(e.Cut, Length{id + 1, rapid.Uint64Range(0, 50).Draw(t, "length")})
			}
		}
		return e
	case KindChange:
		return Entry{Kind: k, Key: "k" + text.Draw(t, "key"), Old: []byte(text.Draw(t, "old")), New: []byte(text.Draw(t, "new"))}
	case KindOpen:
		return Entry{Kind: k, Incarnation: rapid.Uint64Range(1, 9).Draw(t, "incarnation"), Addrs: [][]byte{[]byte(text.Draw(t, "addr"))}}
	case KindSeal:
		return Entry{Kind: k, Shard: ShardID(rapid.IntRange(1, 4).Draw(t, "shard"))}
	case KindPlace:
		return Entry{Kind: k, Shard: ShardID(rapid.IntRange(1, 4).Draw(t, "shard")), Addrs: [][]byte{[]byte(text.Draw(t, "addr")), nil}}
	case KindTrim:
		return Entry{Kind: k, Tag: sharedlog.Tag("t" + text.Draw(t, "tag")), Before: sharedlog.LSN(rapid.Uint64Range(1, 60).Draw(t, "before"))}
	case KindNode:
		return Entry{Kind: k, Node: Node{text.Draw(t, "addr"), NodeState(rapid.IntRange(0, 2).Draw(t, "state"))}}
	case KindRescue:
		return Entry{Kind: k, Shard: ShardID(rapid.IntRange(1, 4).Draw(t, "shard")), Length: rapid.Uint64Range(0, 50).Draw(t, "length")}
	case KindForget:
		e := Entry{Kind: k, Floor: sharedlog.LSN(rapid.Uint64Range(0, 60).Draw(t, "floor")), Shards: []ShardID{}}
		for id := range ShardID(4) {
			if rapid.Bool().Draw(t, "empty") {
				e.Shards = append(e.Shards, id+1)
			}
		}
		return e
	case KindLevel:
		return Entry{Kind: k, Level: uint32(rapid.IntRange(1, Level).Draw(t, "level"))}
	case KindSequencer:
		return Entry{Kind: k, Sequencer: Sequencer{
			ID: rapid.Uint64Range(0, 3).Draw(t, "id"), Addr: text.Draw(t, "addr"),
			StoreID: rapid.Uint64Range(0, 3).Draw(t, "store"), State: SequencerState(rapid.IntRange(0, 2).Draw(t, "state")),
		}}
	default:
		return Entry{Kind: k}
	}
}

// weigh computes the weight of the tables in the slow way.
func weigh(s *State) Weight {
	w := Weight{Shards: len(s.Shards())}
	s.Metadata(func(k string, v []byte) { w.Keys, w.KeyBytes = w.Keys+1, w.KeyBytes+len(k)+len(v) })
	s.TrimPoints(func(t sharedlog.Tag, _ sharedlog.LSN) {
		w.Trims, w.TrimBytes = w.Trims+1, w.TrimBytes+len(t)+pointBytes
	})
	return w
}

// Entries and snapshots survive their encodings, equal states have equal ones, and a state restored
// from a snapshot continues like the original. LSNs have no gaps, cuts are monotonic, and nothing
// changes the length of a sealed shard.
func TestStateOverEncodings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		level := uint32(rapid.IntRange(1, Level).Draw(t, "begins at level"))
		a, b := NewStateAt(level), NewStateAt(level)
		for range rapid.IntRange(1, 40).Draw(t, "entries") {
			e := drawEntry(t)
			raw := AppendEntry(nil, e)
			decoded, err := DecodeEntry(raw)
			require.NoError(t, err)
			require.Equal(t, raw, AppendEntry(nil, decoded))
			for i := range raw {
				if _, err := DecodeEntry(raw[:i]); err == nil {
					t.Fatalf("%v cut to %d of %d bytes decodes", e.Kind, i, len(raw))
				}
			}
			before := a.Tail()
			sealedBefore := map[ShardID]uint64{}
			for _, sh := range a.Shards() {
				if sh.Sealed {
					sealedBefore[sh.ID] = sh.Length
				}
			}
			opened, floor, level := a.Opened(), a.Floor(), a.Level()
			ef := a.Apply(e)
			require.GreaterOrEqual(t, a.Opened(), opened)
			require.GreaterOrEqual(t, a.Floor(), floor)
			require.GreaterOrEqual(t, a.Level(), level)
			require.LessOrEqual(t, a.Floor(), a.Tail())
			require.Equal(t, weigh(a), a.Weight())
			a.TrimPoints(func(_ sharedlog.Tag, before sharedlog.LSN) { require.Greater(t, before, a.Floor()) })
			for i, sh := range a.Shards() {
				require.Equal(t, &a.Shards()[i], a.Shard(sh.ID))
				require.LessOrEqual(t, uint64(sh.ID), a.Opened())
			}
			at := before
			for _, run := range ef.Runs {
				require.Equal(t, at, run.First, "dense")
				require.Greater(t, run.To, run.From)
				at += sharedlog.LSN(run.To - run.From)
			}
			require.Equal(t, at, a.Tail())
			for _, sh := range a.Shards() {
				if n, ok := sealedBefore[sh.ID]; ok {
					require.Equal(t, n, sh.Length, "a cut behind a seal")
				}
			}
			b.Apply(decoded)
			snap := a.AppendSnapshot(nil)
			require.Equal(t, snap, b.AppendSnapshot(nil))
			if rapid.Bool().Draw(t, "restore") {
				b, err = RestoreState(snap)
				require.NoError(t, err)
			}
		}
	})
}

// The cycle of Core: no effect is shown before Advance, reports of another incarnation and old ones
// change nothing (pitfall L8), what was reported before a proposal is ordered before it, and a
// metadata change has its exact place.
func TestCore(t *testing.T) {
	s := NewState()
	s.Apply(Entry{Kind: KindOpen, Incarnation: 7})
	c := NewCore(s)
	require.Empty(t, c.Ready())
	c.Report(Report{Shard: 1, Incarnation: 7, Length: 3})
	c.Report(Report{Shard: 1, Incarnation: 6, Length: 100})
	c.Report(Report{Shard: 1, Incarnation: 7, Length: 2})
	c.Report(Report{Shard: 9, Incarnation: 7, Length: 5})
	c.Propose(Entry{Kind: KindChange, Key: "k", New: []byte("v")})
	c.Report(Report{Shard: 1, Incarnation: 7, Length: 5})
	es := c.Ready()
	require.Len(t, es, 3)
	require.Equal(t, sharedlog.First, c.State().Tail(), "nothing is applied yet")
	require.Empty(t, c.Ready(), "handed out once")
	var shown []Effect
	c.Advance(2, func(e Effect) {
		e.Runs = append([]Run(nil), e.Runs...)
		shown = append(shown, e)
	})
	require.Equal(t, []Run{{Shard: 1, From: 0, To: 3, First: 1}}, shown[0].Runs)
	require.Equal(t, sharedlog.LSN(4), shown[1].Place, "behind what was reported before it")
	require.True(t, shown[1].OK)
	c.Advance(1, func(e Effect) { require.Equal(t, []Run{{Shard: 1, From: 3, To: 5, First: 4}}, e.Runs) })
	c.Propose(Entry{Kind: KindChange, Key: "k", Old: []byte("other"), New: []byte("w")})
	c.Propose(Entry{Kind: KindSeal, Shard: 1})
	c.Advance(len(c.Ready()), func(e Effect) {
		if e.Kind == KindChange {
			require.False(t, e.OK)
			require.Equal(t, "v", string(e.Value))
		}
	})
	c.Report(Report{Shard: 1, Incarnation: 7, Length: 9})
	require.Empty(t, c.Ready(), "a sealed shard is not cut")
}

// The replicas of an open shard are never replaced; those of a sealed one are where the newest
// place entry puts them.
func TestPlace(t *testing.T) {
	s := NewState()
	opened := s.Apply(Entry{Kind: KindOpen, Incarnation: 7, Addrs: [][]byte{[]byte("a"), []byte("b")}})
	// A follower gets the shard as it was opened, however many entries were applied by then (found
	// by the simulator, seed 1283: a backup that came late did not know that it was one).
	defer func() {
		require.Equal(t, Shard{ID: 1, Incarnation: 7, Addrs: [][]byte{[]byte("a"), []byte("b")}, Opened: 1}, opened.Info)
	}()
	place := Entry{Kind: KindPlace, Shard: 1, Addrs: [][]byte{[]byte("b"), []byte("c")}}
	require.False(t, s.Apply(place).OK, "open")
	s.Apply(Entry{Kind: KindSeal, Shard: 1})
	require.True(t, s.Apply(place).OK)
	require.Equal(t, place.Addrs, s.Shards()[0].Addrs)
	place.Shard = 2
	require.False(t, s.Apply(place).OK, "unknown")
	require.Equal(t, []byte("\x07\x01\x02\x01b\x01c"), AppendEntry(nil, Entry{Kind: KindPlace, Shard: 1, Addrs: [][]byte{[]byte("b"), []byte("c")}}))
}
