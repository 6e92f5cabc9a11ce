package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog/logpb"
)

func TestClusterMetrics(t *testing.T) {
	m := &logpb.SequencerStatus{
		Leader: &logpb.Leader{Me: true}, ReplicasWanted: 3, Level: 2,
		Shards: []*logpb.Shard{
			{Id: 1, Addrs: []string{"a", "b", "c"}, Length: 9, Sealed: true, Lost: 4},
			{Id: 2, Addrs: []string{"a", "b", "c"}, Length: 9, Sealed: true},
			{Id: 3, Addrs: []string{"b", "c", "a"}},
			{Id: 4, Addrs: []string{"c", "a", "d"}},
		},
		Nodes: []*logpb.NodeStatus{
			{Addr: "a", Connected: true, Full: []uint32{1}, Replicas: []*logpb.ReplicaHealth{{Shard: 3, State: logpb.ReplicaHealth_STALE}, {Shard: 4}}},
			{Addr: "b", Connected: true, Full: []uint32{1}, Readonly: true, Replicas: []*logpb.ReplicaHealth{{Shard: 9, State: logpb.ReplicaHealth_DAMAGED}}},
			{Addr: "c", Connected: true, Full: []uint32{1}, State: logpb.Node_DRAINING, Replicas: []*logpb.ReplicaHealth{{Shard: 3, State: logpb.ReplicaHealth_BEHIND}}},
			{Addr: "d", Connected: false, Full: []uint32{2}},
		},
		Members: []*logpb.MemberStatus{{Member: &logpb.Sequencer{}}, {Member: &logpb.Sequencer{State: logpb.Sequencer_LEARNER}}},
	}
	require.Equal(t, map[string]float64{
		"replicas_wanted": 3, "level": 2, "voters": 1, "lost_records": 4,
		"replicas_behind": 1, "replicas_stale": 1, "replicas_damaged": 1, "nodes_draining": 1, "nodes_readonly": 1,
		"shards_short":        3, // 2: only d's, which is not connected; 3: a's is stale, c's behind; 4: d is not connected
		"shards_without_copy": 1,
	}, clusterMetrics(m))
	m.Leader.Me = false
	require.Nil(t, clusterMetrics(m))
}
