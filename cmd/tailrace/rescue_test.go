package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog/logpb"
)

// A rescue finds what is left of a shard on whatever node has it. A node that does not answer, or
// does not know of the seal yet, may have more.
func TestRescues(t *testing.T) {
	shard := func(id uint32, length, lost uint64) *logpb.Shard {
		return &logpb.Shard{Id: id, Addrs: []string{"a", "b", "c"}, Opened: 5, Length: length, Lost: lost, Sealed: true, SealedAt: 100}
	}
	has := func(shard uint32, role string, remains, end uint64) *logpb.ReplicaStatus {
		return &logpb.ReplicaStatus{Shard: shard, Role: role, Sealed: role != "backup", Full: role == "full", Remains: remains, RemainsEnd: end}
	}
	node := func(replicas ...*logpb.ReplicaStatus) *logpb.StorageStatus {
		return &logpb.StorageStatus{Replicas: replicas}
	}
	open := &logpb.Shard{Id: 9, Addrs: []string{"b", "x", "y"}}
	for _, c := range []struct {
		name    string
		shard   *logpb.Shard
		nodes   map[string]*logpb.StorageStatus
		without []string
		removed bool   // node c was removed
		want    string // printed
	}{
		{"whole", shard(1, 50, 0), map[string]*logpb.StorageStatus{"a": node(has(1, "full", 50, 100)), "b": nil, "c": nil}, nil, false, ""},
		{"whole elsewhere", shard(1, 50, 0), map[string]*logpb.StorageStatus{"a": node(), "b": nil, "c": nil, "d": node(has(1, "full", 50, 100))}, nil, false, ""},
		{"stale and whole", shard(1, 50, 0), map[string]*logpb.StorageStatus{"a": node(has(1, "stale", 50, 99)), "b": nil, "c": nil}, nil, false, ""},
		{"given up before", shard(1, 50, 50), map[string]*logpb.StorageStatus{"a": nil, "b": nil, "c": nil}, nil, false, ""},
		{"what is left", shard(1, 50, 0), map[string]*logpb.StorageStatus{"a": node(has(1, "stale", 0, 5)), "b": node(has(1, "sealed", 20, 33)), "c": node(has(1, "stale", 30, 47))}, nil, false, `
shard 1, sealed at 100: no replica holds all of its 50 records
  a  0   stale
  b  20  sealed
  c  30  stale
  would be lost: 20 records, between LSN 47 and 100
`},
		{"nothing is left, and of a second rescue", shard(1, 50, 10), map[string]*logpb.StorageStatus{"a": node(has(1, "stale", 0, 5)), "b": node(has(1, "stale", 0, 5)), "c": node(has(1, "stale", 0, 5))}, nil, false, `
shard 1, sealed at 100: no replica holds all of its 40 records
  a  0  stale
  b  0  stale
  c  0  stale
  would be lost: 40 records, between LSN 5 and 100
`},
		{"a node is down", shard(1, 50, 0), map[string]*logpb.StorageStatus{"a": nil, "b": node(has(1, "sealed", 20, 33)), "c": node(has(1, "backup", 0, 0))}, []string{"b"}, false, `
shard 1, sealed at 100: no replica holds all of its 50 records
  a  0   no answer
  b  20  sealed
  c  0   backup
  would be lost: 30 records, between LSN 33 and 100
  not now: a does not answer, and may hold what is missing: start it, or give it up with --without a
`},
		{"a node is gone", shard(1, 50, 0), map[string]*logpb.StorageStatus{"a": nil, "b": node(has(1, "sealed", 20, 33)), "c": node(has(1, "backup", 0, 0))}, []string{"a"}, false, `
shard 1, sealed at 100: no replica holds all of its 50 records
  a  0   no answer; given up
  b  20  sealed
  c  0   backup
  would be lost: 30 records, between LSN 33 and 100
  not now: c does not know yet that the shard is sealed; try again
`},
		{"a node knows nothing yet, and one was removed", shard(1, 50, 0), map[string]*logpb.StorageStatus{"a": node(), "b": node(has(1, "sealed", 20, 33)), "c": nil}, nil, true, `
shard 1, sealed at 100: no replica holds all of its 50 records
  a  0   has none
  b  20  sealed
  c  0   no answer; given up
  would be lost: 30 records, between LSN 33 and 100
  not now: a does not know of the shard yet; try again
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := &cluster{leader: &logpb.SequencerStatus{Shards: []*logpb.Shard{c.shard, open}}, nodes: c.nodes}
			if c.removed {
				cl.leader.Nodes = []*logpb.NodeStatus{{Addr: "c", State: logpb.Node_REMOVED}}
			}
			rows := cl.rescues(c.without, nil)
			var out strings.Builder
			printRescues(&out, rows)
			require.Equal(t, strings.TrimPrefix(c.want, "\n"), out.String())
			require.Empty(t, cl.rescues(c.without, []uint{2}))
			require.Equal(t, []uint32{9}, cl.endangered())
		})
	}
}

// A storage node or a shard that the cluster does not know is a mistake, not a node that is lost.
func TestRescueOfWhatIsNotKnown(t *testing.T) {
	c := &cluster{
		leader: &logpb.SequencerStatus{Shards: []*logpb.Shard{{Id: 3}, {Id: 5}}},
		nodes:  map[string]*logpb.StorageStatus{"b:1": nil, "a:1": new(logpb.StorageStatus)},
	}
	require.NoError(t, c.know(&rescuing{without: []string{"b:1", "a:1"}, only: []uint{5, 3}}))
	require.EqualError(t, c.know(&rescuing{without: []string{"b:1", "c:1"}}), "--without c:1: no storage node of the cluster has this address; it knows a:1, b:1")
	require.ErrorContains(t, c.know(&rescuing{only: []uint{3, 4}}), "--shard 4: the cluster has no such shard")
}
