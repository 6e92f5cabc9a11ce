package server

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// Whether a sequencer with an empty directory may start, depending on the answers of the others.
func TestDecide(t *testing.T) {
	peers := map[uint64]string{2: "s2", 3: "s3"}
	fresh := func(id, store uint64) *logpb.Identity {
		return &logpb.Identity{Id: id, StoreId: store, Addr: name(id), Peers: []uint64{1, 2, 3}}
	}
	row := func(id, store uint64, state logpb.Sequencer_State) *logpb.Sequencer {
		return &logpb.Sequencer{Id: id, Addr: name(id), StoreId: store, State: state}
	}
	formed := func(id uint64, level uint32, rows ...*logpb.Sequencer) *logpb.Identity {
		return &logpb.Identity{Id: id, StoreId: 10 * id, Member: true, ClusterLevel: level, Members: rows}
	}
	joins := func(id uint64) *logpb.Identity {
		a := fresh(id, 10*id)
		a.Joins, a.Peers = true, nil
		return a
	}
	const voter, removed = logpb.Sequencer_VOTER, logpb.Sequencer_REMOVED
	me := fresh(1, 10)
	four := joins(4)
	for what, c := range map[string]struct {
		me      *logpb.Identity
		answers map[uint64]*logpb.Identity
		begin   bool
		join    bool
		final   bool
		says    string
	}{
		"all are there":               {me: me, answers: map[uint64]*logpb.Identity{2: fresh(2, 20), 3: fresh(3, 30)}, begin: true},
		"one is missing":              {me: me, answers: map[uint64]*logpb.Identity{2: fresh(2, 20)}, says: "waits for sequencer 3 at s3 (down)"},
		"no process is there":         {me: me, says: "waits for sequencer 2 at s2 (down), 3 at s3 (down)"},
		"an address is another's":     {me: me, answers: map[uint64]*logpb.Identity{2: fresh(3, 30), 3: fresh(3, 30)}, says: "s2 is the address of sequencer 3, not 2"},
		"one joins":                   {me: me, answers: map[uint64]*logpb.Identity{2: fresh(2, 20), 3: joins(3)}, says: "sequencer 3 waits to join"},
		"other peers":                 {me: me, answers: map[uint64]*logpb.Identity{2: {Id: 2, StoreId: 20, Peers: []uint64{1, 2}}, 3: fresh(3, 30)}, says: "was given the sequencers [1 2]"},
		"it is late":                  {me: me, answers: map[uint64]*logpb.Identity{3: formed(3, 2, row(1, 10, voter), row(2, 20, voter))}, join: true},
		"it is late, another waits":   {me: me, answers: map[uint64]*logpb.Identity{2: fresh(2, 20), 3: formed(3, 2, row(1, 10, voter))}, join: true},
		"it was wiped":                {me: me, answers: map[uint64]*logpb.Identity{2: fresh(2, 20), 3: formed(3, 2, row(1, 11, voter))}, final: true, says: "log sequencers remove --id 1"},
		"it was removed":              {me: me, answers: map[uint64]*logpb.Identity{2: formed(2, 2, row(1, 10, removed))}, final: true, says: "was removed"},
		"the cluster does not know":   {me: me, answers: map[uint64]*logpb.Identity{2: formed(2, 2, row(3, 30, voter))}, final: true, says: "log sequencers remove --id 1"},
		"wiped, at level 1":           {me: me, answers: map[uint64]*logpb.Identity{2: formed(2, 1)}, final: true, says: "log sequencers remove --id 1"},
		"store not known yet":         {me: me, answers: map[uint64]*logpb.Identity{2: formed(2, 2, row(1, 0, voter))}, final: true, says: "log sequencers remove --id 1"},
		"joins: no process is there":  {me: four, says: "looks for a sequencer of the cluster: 2 at s2 (down)"},
		"joins: not added":            {me: four, answers: map[uint64]*logpb.Identity{2: formed(2, 2, row(2, 20, voter)), 3: fresh(3, 30)}, says: "log sequencers add --id 4 --addr s4"},
		"joins: added":                {me: four, answers: map[uint64]*logpb.Identity{2: formed(2, 2, row(4, 40, logpb.Sequencer_LEARNER))}, join: true},
		"joins: one knows it already": {me: four, answers: map[uint64]*logpb.Identity{2: formed(2, 2, row(2, 20, voter)), 3: formed(3, 2, row(2, 20, voter), row(4, 40, voter))}, join: true},
		"joins: the number is taken":  {me: four, answers: map[uint64]*logpb.Identity{2: formed(2, 2, row(4, 41, voter))}, final: true, says: "log sequencers remove --id 4"},
		"joins: the number was used":  {me: four, answers: map[uint64]*logpb.Identity{2: formed(2, 2, row(4, 40, removed))}, final: true, says: "give this one another --id"},
		"joins: too old a cluster":    {me: four, answers: map[uint64]*logpb.Identity{2: formed(2, 1)}, says: "feature level 1"},
	} {
		t.Run(what, func(t *testing.T) {
			failed := map[uint64]error{2: errors.New("down"), 3: errors.New("down")}
			v := decide(c.me, peers, c.answers, failed)
			require.Equal(t, c.begin, v.begin != nil)
			require.Equal(t, c.join, v.join)
			require.Equal(t, c.final, v.final)
			says := v.waits
			if v.err != nil {
				says = v.err.Error()
			}
			require.Contains(t, says, c.says)
			require.Equal(t, c.says == "", says == "")
			if v.begin != nil {
				require.Equal(t, []sequencer.Sequencer{{ID: 1, Addr: "s1", StoreID: 10}, {ID: 2, Addr: "s2", StoreID: 20}, {ID: 3, Addr: "s3", StoreID: 30}}, v.begin)
			}
		})
	}
	// A sequencer without others starts alone.
	require.NotNil(t, decide(&logpb.Identity{Id: 1, StoreId: 10, Peers: []uint64{1}}, nil, nil, nil).begin)
}
