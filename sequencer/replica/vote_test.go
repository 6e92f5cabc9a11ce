package replica

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"tailrace.dev/tailrace/internal/vfs"
)

// A vote is on disk before it is sent, also with Lazy, and also if the term was known before: two
// votes in one term could elect two leaders.
func TestAVoteIsOnDisk(t *testing.T) {
	open := func(disk *vfs.Mem) *Replica {
		r, err := Open(Options{ID: 1, Voters: []uint64{1, 2, 3}, FS: disk, Dir: "seq", AheadBytes: -1, Lazy: true, Passive: true, Logger: quiet})
		require.NoError(t, err)
		return r
	}
	// asks requests the replica's vote for a candidate in term 5.
	asks := func(r *Replica, candidate, index uint64) (granted bool) {
		require.NoError(t, r.Step(&raftpb.Message{
			Type: raftpb.MsgVote.Enum(), From: &candidate, To: new(uint64(1)), Term: new(uint64(5)), Index: &index, LogTerm: &index,
		}))
		out, err := r.Process()
		require.NoError(t, err)
		require.Len(t, out.Messages, 1)
		require.Equal(t, raftpb.MsgVoteResp, out.Messages[0].GetType())
		return !out.Messages[0].GetReject()
	}
	disk := vfs.NewMem()
	r := open(disk)
	require.False(t, asks(r, 2, 0), "its log is shorter")
	require.True(t, asks(r, 3, 1))
	for seed := range uint64(20) {
		after := open(disk.CrashClone(rand.New(rand.NewPCG(seed, 0))))
		require.False(t, asks(after, 2, 1), "seed %d: it has voted in this term", seed)
		require.True(t, asks(after, 3, 1))
		require.NoError(t, after.Close())
	}
	require.NoError(t, r.Close())
}
