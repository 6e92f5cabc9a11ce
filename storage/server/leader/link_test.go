package leader

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage/server/table"
)

// replica is a replica on the node.
type replica struct {
	id     uint32
	state  logpb.ReplicaHealth_State
	length uint64
	sealed bool // and so not reported, if it is healthy
}

func (r *replica) ID() uint32 { return r.id }

func (r *replica) Health(_ uint64, damaged bool) (*logpb.ReplicaHealth, uint64, bool) {
	h := &logpb.ReplicaHealth{Shard: r.id, State: r.state, Length: r.length}
	if damaged {
		h.State = logpb.ReplicaHealth_DAMAGED
	}
	return h, r.length, !r.sealed || damaged
}

// known is what a leader has made of the reports of one stream.
type known struct {
	lengths     map[uint32]*logpb.Report
	full, empty []uint32
	replicas    map[uint32]*logpb.ReplicaHealth
}

func (k *known) take(m *logpb.NodeReport) {
	for _, r := range m.Reports {
		k.lengths[r.Shard] = r
	}
	if m.FullChanged {
		k.full = m.Full
	}
	if m.EmptyChanged {
		k.empty = m.Empty
	}
	for _, h := range m.Replicas {
		k.replicas[h.Shard] = h
	}
}

// The first report of a stream says all, and the others what has changed: whatever happens, and
// whenever a stream is lost and another leader gets the reports, the leader knows what the node has
// reported: lengths, full and empty shards, and with each beat the health of the replicas.
func TestReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := map[uint32]*replica{}
		var tab table.Table
		tab.InitEmpty()
		l := New(Options{
			Addr: "node", Table: &tab, Space: func() (int64, bool) { return 1000, false },
			Replicas: func() (all []Replica) {
				for _, id := range slices.Sorted(maps.Keys(replicas)) {
					all = append(all, replicas[id])
				}
				return all
			},
		})
		lengths := map[uint32]*logpb.Report{}
		full, empty, damaged := map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}
		var leader known
		fresh := true
		draw := func(t *rapid.T) uint32 { return rapid.Uint32Range(1, 4).Draw(t, "shard") }
		t.Repeat(map[string]func(*rapid.T){
			"report": func(t *rapid.T) {
				r := &logpb.Report{Shard: draw(t), Incarnation: 3, Length: rapid.Uint64Range(0, 100).Draw(t, "length"), Bytes: 7}
				if !full[r.Shard] {
					l.Report(r.Shard, r.Incarnation, r.Length, r.Bytes)
					lengths[r.Shard] = r
				}
			},
			"holds": func(t *rapid.T) {
				id := draw(t)
				l.Holds(id)
				delete(lengths, id)
				full[id] = true
			},
			"found": func(t *rapid.T) {
				damaged, empty = map[uint32]bool{}, map[uint32]bool{}
				for id := range uint32(4) {
					if rapid.Bool().Draw(t, "damaged") {
						damaged[id+1] = true
					}
					if rapid.Bool().Draw(t, "empty") {
						empty[id+1] = true
					}
				}
				l.Found(maps.Clone(damaged), maps.Clone(empty))
			},
			"forget": func(t *rapid.T) {
				id := draw(t)
				l.Forget(id)
				for _, m := range []map[uint32]bool{full, empty, damaged} {
					delete(m, id)
				}
				delete(lengths, id)
				delete(replicas, id)
				delete(leader.lengths, id) // the metalog has told the leader before
				delete(leader.replicas, id)
			},
			"replica": func(t *rapid.T) {
				id := draw(t)
				replicas[id] = &replica{
					id:     id,
					state:  rapid.SampledFrom([]logpb.ReplicaHealth_State{logpb.ReplicaHealth_OK, logpb.ReplicaHealth_BEHIND}).Draw(t, "state"),
					length: rapid.Uint64Range(0, 3).Draw(t, "length"),
					sealed: rapid.Bool().Draw(t, "sealed"),
				}
			},
			"other leader": func(*rapid.T) { fresh = true },
			"": func(t *rapid.T) {
				beat := rapid.Bool().Draw(t, "beat")
				if fresh {
					leader = known{lengths: map[uint32]*logpb.Report{}, replicas: map[uint32]*logpb.ReplicaHealth{}}
				}
				m := l.message(fresh, beat)
				require.Equal(t, "node", m.Addr)
				leader.take(m)
				for id, r := range lengths {
					require.True(t, proto.Equal(r, leader.lengths[id]), "shard %d: %v instead of %v", id, leader.lengths[id], r)
				}
				require.Equal(t, slices.Sorted(maps.Keys(full)), leader.full)
				require.Equal(t, slices.Sorted(maps.Keys(empty)), leader.empty)
				require.Equal(t, empty[2], l.Empty(2))
				if beat || fresh {
					for id, r := range replicas {
						want, _, report := r.Health(0, damaged[id])
						got := leader.replicas[id]
						switch {
						case report:
							require.Equal(t, want.State, got.GetState(), "shard %d", id)
							if want.State == logpb.ReplicaHealth_BEHIND {
								require.Equal(t, want.Length, got.GetLength(), "shard %d", id)
							}
						case got != nil:
							require.Equal(t, logpb.ReplicaHealth_OK, got.State, "shard %d", id)
						}
					}
				}
				fresh = false
				m = l.message(false, true)
				require.Empty(t, m.Reports, "a report says nothing twice")
				require.False(t, m.FullChanged || m.EmptyChanged)
				leader.take(m)
			},
		})
	})
}
