package server

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// Over many shards and tags the size of the tables is bounded by what is left in the log, and no
// shard with an untrimmed record is forgotten.
func TestTablesStayBounded(t *testing.T) {
	const (
		rounds   = 3000
		lag      = 20 // rounds until a record is trimmed
		replicas = 3
	)
	type record struct {
		lsn   sharedlog.LSN
		shard sequencer.ShardID
		tag   sharedlog.Tag
	}
	rng := rand.New(rand.NewPCG(1, 2))
	state := sequencer.NewState()
	nodes := map[string]*node{}
	var addrs [][]byte
	for i := range replicas {
		addr := fmt.Sprint("n", i)
		addrs = append(addrs, []byte(addr))
		nodes[addr] = &node{empty: map[sequencer.ShardID]bool{}}
	}
	var records []record // those that are left
	left := func(shard sequencer.ShardID) (n int) {
		for _, r := range records {
			if r.shard == shard {
				n++
			}
		}
		return n
	}
	lengths := map[sequencer.ShardID]uint64{}
	var open []sequencer.ShardID
	var tidy tidy
	mostShards, mostTrims, forgotten := 0, 0, 0
	for round := range rounds {
		now := int64(round) * 100
		if round%5 == 0 || len(open) == 0 {
			ef := state.Apply(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: 1, Addrs: addrs})
			open = append(open, ef.Shard)
		}
		if len(open) > 3 {
			require.True(t, state.Apply(sequencer.Entry{Kind: sequencer.KindSeal, Shard: open[0]}).OK)
			open = open[1:]
		}
		for _, id := range open {
			if rng.IntN(3) > 0 { // some stay empty
				lengths[id]++
				ef := state.Apply(sequencer.Entry{Kind: sequencer.KindCut, Cut: []sequencer.Length{{Shard: id, Length: lengths[id]}}})
				// A tag is used in a few rounds and never again.
				records = append(records, record{ef.Runs[0].First, id, sharedlog.Tag(fmt.Sprint("t", round/3, "-", id))})
			}
		}
		for len(records) > 3*lag {
			r := records[0]
			require.True(t, state.Apply(sequencer.Entry{Kind: sequencer.KindTrim, Tag: r.tag, Before: r.lsn + 1}).OK)
			records = records[1:]
		}
		for _, n := range nodes { // each reports it at some time
			if rng.IntN(3) > 0 {
				continue
			}
			clear(n.empty)
			for _, sh := range state.Shards() {
				if sh.Sealed && left(sh.ID) == 0 {
					n.empty[sh.ID] = true
				}
			}
		}
		if e, ok := tidy.decide(state, func(addr string) *node { return nodes[addr] }, now, 500); ok {
			for _, id := range e.Shards {
				require.Zero(t, left(id), "shard %d has records", id)
			}
			for _, r := range records {
				require.LessOrEqual(t, e.Floor, r.lsn, "a record lies below the floor")
			}
			ef := state.Apply(e)
			require.True(t, ef.OK)
			forgotten += len(ef.Forgotten)
		}
		w := state.Weight()
		mostShards, mostTrims = max(mostShards, w.Shards), max(mostTrims, w.Trims)
	}
	require.Greater(t, state.Opened(), uint64(rounds/5-1))
	require.Greater(t, forgotten, rounds/5-50)
	require.Less(t, mostShards, 60)
	require.Less(t, mostTrims, 300)
}

// The conditions for forgetting a shard.
func TestWhatIsForgotten(t *testing.T) {
	addrs := [][]byte{[]byte("a"), []byte("b")}
	play := func(length uint64, sealed bool) *sequencer.State {
		s := sequencer.NewState()
		for range 2 {
			s.Apply(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: 1, Addrs: addrs})
		}
		if length > 0 {
			s.Apply(sequencer.Entry{Kind: sequencer.KindCut, Cut: []sequencer.Length{{Shard: 1, Length: length}}})
		}
		if sealed {
			s.Apply(sequencer.Entry{Kind: sequencer.KindSeal, Shard: 1})
		}
		s.Apply(sequencer.Entry{Kind: sequencer.KindCut, Cut: []sequencer.Length{{Shard: 2, Length: 1}}})
		return s
	}
	empty := map[sequencer.ShardID]bool{1: true}
	both := map[string]*node{"a": {empty: empty}, "b": {empty: empty}}
	away := &node{empty: empty}
	away.Broken = 1
	for name, c := range map[string]struct {
		state *sequencer.State
		nodes map[string]*node
		want  bool
	}{
		"all say so":                     {play(3, true), both, true},
		"one has something":              {play(3, true), map[string]*node{"a": {empty: empty}, "b": {}}, false},
		"one is silent":                  {play(3, true), map[string]*node{"a": {empty: empty}}, false},
		"one is gone":                    {play(3, true), map[string]*node{"a": {empty: empty}, "b": away}, false},
		"open":                           {play(3, false), both, false},
		"nothing ever, one is gone":      {play(0, true), map[string]*node{"a": {empty: empty}, "b": away}, true},
		"nothing ever, not sealed there": {play(0, true), map[string]*node{"a": {empty: empty}, "b": {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var tidy tidy
			node := func(addr string) *node { return c.nodes[addr] }
			_, ok := tidy.decide(c.state, node, 1000, 500)
			require.False(t, ok, "not at once")
			e, ok := tidy.decide(c.state, node, 1500, 500)
			require.Equal(t, c.want, ok)
			if ok {
				require.Equal(t, []sequencer.ShardID{1}, e.Shards)
				require.EqualValues(t, c.state.Shard(2).Opened, e.Floor)
			}
		})
	}
	s := play(3, true)
	require.True(t, s.Apply(sequencer.Entry{Kind: sequencer.KindRescue, Shard: 1, Length: 0}).OK)
	var tidy tidy
	for now := range int64(10) {
		_, ok := tidy.decide(s, func(addr string) *node { return both[addr] }, now*1000, 500)
		require.False(t, ok, "readers are to be shown the loss")
	}
}
