package host

import "tailrace.dev/tailrace/sharedlog/logpb"

// clusterMetrics returns what the leading sequencer knows about the storage nodes and the copies of
// the shards, or nil for a sequencer that does not lead. A copy of a sealed shard counts if it is
// complete, a copy of an open shard if it takes part; both count only at connected nodes.
func clusterMetrics(m *logpb.SequencerStatus) map[string]float64 {
	if !m.GetLeader().GetMe() {
		return nil
	}
	n := map[string]float64{
		"replicas_wanted": float64(m.GetReplicasWanted()), "level": float64(m.GetLevel()), "voters": 0, "lost_records": 0,
		"replicas_behind": 0, "replicas_stale": 0, "replicas_damaged": 0, "nodes_draining": 0, "nodes_readonly": 0,
		"shards_short": 0, "shards_without_copy": 0,
	}
	for _, q := range m.GetMembers() {
		if q.GetMember().GetState() == logpb.Sequencer_VOTER {
			n["voters"]++
		}
	}
	connected := map[string]bool{}
	whole := map[uint32]int{}           // complete copies of sealed shards, by shard
	ill := map[uint32]map[string]bool{} // nodes that do not take part, by shard
	for _, node := range m.GetNodes() {
		if node.GetSilentMs() >= 0 && node.GetConnected() {
			connected[node.GetAddr()] = true
			for _, s := range node.GetFull() {
				whole[s]++
			}
		}
		if node.GetState() == logpb.Node_DRAINING {
			n["nodes_draining"]++
		}
		if node.GetReadonly() {
			n["nodes_readonly"]++
		}
		for _, r := range node.GetReplicas() {
			if r.GetState() != logpb.ReplicaHealth_OK {
				if ill[r.GetShard()] == nil {
					ill[r.GetShard()] = map[string]bool{}
				}
				ill[r.GetShard()][node.GetAddr()] = true
			}
			switch r.GetState() {
			case logpb.ReplicaHealth_BEHIND:
				n["replicas_behind"]++
			case logpb.ReplicaHealth_STALE:
				n["replicas_stale"]++
			case logpb.ReplicaHealth_DAMAGED:
				n["replicas_damaged"]++
			}
		}
	}
	for _, s := range m.GetShards() {
		n["lost_records"] += float64(s.GetLost())
		copies := 0
		switch {
		case s.GetSealed() && s.GetLength() == s.GetLost(): // empty, or all records are lost
			continue
		case s.GetSealed():
			copies = whole[s.GetId()]
		default:
			for _, addr := range s.GetAddrs() {
				if connected[addr] && !ill[s.GetId()][addr] {
					copies++
				}
			}
		}
		if copies < int(m.GetReplicasWanted()) {
			n["shards_short"]++
		}
		if copies == 0 {
			n["shards_without_copy"]++
		}
	}
	return n
}
