package server

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/server/files"
)

const (
	ok      = logpb.ReplicaHealth_OK
	behind  = logpb.ReplicaHealth_BEHIND
	staleIs = logpb.ReplicaHealth_STALE
	damaged = logpb.ReplicaHealth_DAMAGED
)

// noRoom simulates a full disk.
func noRoom(op vfs.Op) error {
	if op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate {
		return syscall.ENOSPC
	}
	return nil
}

// listed waits until the node's directory has the layout of this level.
func (m *member) listed() {
	m.c.until(func() bool {
		b, err := files.Dir{FS: m.fs, Path: "d"}.Read("NODE")
		return err == nil && strings.HasPrefix(string(b), nodeVersion)
	})
}

// A shard is opened while the disk of one of its backups is full: the node keeps running, is
// restarted in this state, reports that it is behind, and has everything when there is room.
func TestBackupOpenedOnAFullDisk(t *testing.T) {
	c := newCluster(t, 3, nil)
	m := c.members[1]
	m.listed() // the next start needs no space
	m.fail(noRoom)
	id := c.open(0, 1, 2)
	w := c.writer("w", id, 0)
	want := w.append(5, "x")
	c.healthy(0, id, ok)
	c.healthy(2, id, ok)
	c.healthy(1, id, behind)
	m.restart()
	c.until(func() bool { return m.replica(id) != nil })
	want = append(want, w.append(5, "x")...)
	c.healthy(1, id, behind)
	m.fail(nil)
	c.healthy(1, id, ok)
	c.seal(id)
	c.full(id, 0, 1, 2)
	got, err := c.read(1, id, "x", 1)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A shard is opened while its primary's disk is full: each group is refused with that error, and
// the same stream continues when there is room.
func TestPrimaryOpenedOnAFullDisk(t *testing.T) {
	c := newCluster(t, 2, nil)
	c.members[0].fail(noRoom)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	for range 3 {
		w.number, w.opens = 0, true
		w.send([]byte("a"), "x")
		require.ErrorIs(t, w.answers(1)[0].Err, sharedlog.ErrFull)
	}
	c.members[0].fail(nil)
	c.until(func() bool {
		w.number, w.opens = 0, true
		w.send([]byte("a"), "x")
		return w.answers(1)[0].Err == nil
	})
	require.Len(t, w.append(5, "x"), 5)
}

// The disks of all nodes are full when a shard is opened, and all nodes are restarted: none of them
// exits, and with room again the shard accepts groups without further action.
func TestAllDisksAreFull(t *testing.T) {
	c := newCluster(t, 3, nil)
	for _, m := range c.members {
		m.listed() // the next start needs no space
	}
	old := c.open(0, 1, 2)
	want := c.writer("w", old, 0).append(10, "x")
	for _, m := range c.members {
		m.fail(noRoom)
	}
	c.seal(old)
	id := c.open(1, 0, 2)
	for _, m := range c.members[:2:2] {
		m.restart()
	}
	c.until(func() bool { return c.members[0].replica(id) != nil && c.members[1].replica(id) != nil })
	c.seal(id) // its primary process is gone
	id = c.open(1, 0, 2)
	for _, m := range c.members {
		m.fail(nil)
	}
	c.full(old, 0, 1, 2)
	for i := range c.members {
		got, err := c.read(i, old, "x", 1)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	w := c.writer("w2", id, 1)
	c.until(func() bool {
		w.number, w.opens = 0, true
		w.send([]byte("a"), "x")
		return w.answers(1)[0].Err == nil
	})
	w.append(5, "x")
	for i := range c.members {
		c.healthy(i, id, ok)
	}
}

// Reports of replicas to the leader: a replica that has missed a part of the metalog is stale as
// long as the shard is open; one with a damaged segment is damaged until it is repaired, also after
// the seal; a shard in which nothing is left is empty.
func TestHealthOfReplicas(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	w.append(20, "x")
	c.healthy(1, id, ok)
	m := c.members[1]
	c.disconnect(1)
	c.change("k", "v")
	c.follows(0)
	c.compact()
	c.reconnect(1)
	c.healthy(1, id, staleIs)
	require.Equal(t, int(storage.PhaseStale), m.phase(id))
	require.NotZero(t, c.last(c.members[0].addr).GetLevel())
	c.seal(id)
	c.full(id, 0, 1)
	c.noLonger(1, id, staleIs)
	broken := m.ids(id)[1]
	m.end()
	m.flip(broken, -60)
	c.members[0].end() // otherwise the segment would be fetched from it at once
	m.start()
	c.healthy(1, id, damaged)
	c.members[0].start()
	c.noLonger(1, id, damaged)
	c.trim("x", c.tail())
	for i := range c.members {
		c.until(func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.Contains(c.empty[c.members[i].addr], id)
		}, "node %d does not say that nothing is left", i)
	}
}
