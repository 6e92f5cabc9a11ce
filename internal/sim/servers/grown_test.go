package servers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/sim/servers"
)

// Shards that reach a size are replaced under writers that keep appends in flight, and none is in
// flight at the seal: writers leave a shard during the half second for which its successor exists.
// Time is virtual here, so an append takes as long on a slow machine as on a fast one.
// internal/host replaces shards with real sockets and disks.
func TestGrownShardsAreLeftBeforeTheSeal(t *testing.T) {
	const writers, appends = 6, 250
	plan := servers.NewPlan(1, false, false)
	plan.Theme, plan.Faults, plan.Clocks, plan.Tasks, plan.Verbose = "", nil, nil, nil, true
	plan.Length = 2500
	s := &plan.Settings
	s.Nodes, s.PerNode, s.Tags, s.ShardBytes = 3, 1, 1, 128<<10
	s.QueueBytes, s.Fsync, s.SequencerFsync = 32<<20, "interval", "interval"
	s.GraceMs, s.SilenceMs, s.ClientSilenceMs = 400, 2000, 200
	s.LatencyUs, s.JitterUs = 10_000, 1000 // an append takes about 50 ms: the next three wait behind it
	for i := range writers {
		plan.Tasks = append(plan.Tasks, servers.Task{ID: i, Kind: "writer", Client: i % plan.Clients, Ops: appends, Tags: []int{0}, Flight: 4, Size: 1000})
	}
	r := play(t, plan, patience)
	require.NoError(t, r.Err(), "%s", r.Story)
	require.GreaterOrEqual(t, r.Operations, writers*appends)
	t.Logf("%v of virtual time, %d appends, %d seals", r.Virtual, r.Operations, r.Counts["shard sealed"]/s.Nodes)
	require.GreaterOrEqual(t, r.Counts["shard sealed"], 3*s.Nodes, "three shards, each on all nodes")
	require.Zero(t, r.Counts["shard sealed, resolving"], "appends are in flight at a seal")
}
