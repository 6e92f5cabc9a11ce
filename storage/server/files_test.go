package server

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// A checkpoint with a flipped bit, or under another file's name, is ignored.
func TestADamagedCheckpointIsNone(t *testing.T) {
	fsys := vfs.NewMem()
	n := start(t, fsys, self)
	n.table.Init(&logpb.Snapshot{Level: listLevel})
	want := &logpb.ReplicaCheckpoint{Shard: &logpb.Shard{Id: 9, Addrs: []string{"a", "b"}, Opened: 3}, Index: 77}
	name := orderName(9)
	require.NoError(t, n.writeMessage(name, want))
	reads := func(name string) bool {
		var m logpb.ReplicaCheckpoint
		ok, err := n.readMessage(name, &m)
		require.NoError(t, err)
		return ok
	}
	require.True(t, reads(name))
	b, err := n.files().Read(name)
	require.NoError(t, err)
	for i := range 8 * len(b) {
		b[i/8] ^= 1 << (i % 8)
		require.NoError(t, n.files().Write(name, b))
		require.False(t, reads(name), "bit %d", i)
		b[i/8] ^= 1 << (i % 8)
	}
	require.NoError(t, n.files().Write(orderName(8), b))
	require.False(t, reads(orderName(8)))
}

// The list of closed segments is not trusted until the cluster's level excludes a return to a
// program that keeps no list.
func TestTheListIsBelievedAtItsLevel(t *testing.T) {
	fsys := vfs.NewMem()
	n := start(t, fsys, self)
	first := func() string {
		b, err := n.files().Read("NODE")
		require.NoError(t, err)
		line, _, _ := strings.Cut(string(b), "\n")
		return line
	}
	n.table.Init(&logpb.Snapshot{Level: listLevel - 1})
	require.NoError(t, n.trustList())
	require.Equal(t, unlistedVersion, first())
	n.table.Init(&logpb.Snapshot{Level: listLevel})
	require.NoError(t, n.trustList())
	require.Equal(t, nodeVersion, first())
}
