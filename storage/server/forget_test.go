package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/storage/server/files"
)

// files returns the names of a node's files of a shard besides its segments.
func (m *member) files(shard uint32) []string {
	names, err := m.fs.List("d")
	require.NoError(m.c.t, err)
	return slices.DeleteFunc(names, func(name string) bool {
		return name != orderName(shard) && name != writersName(shard)
	})
}

// A forgotten shard is removed from the nodes: by events, by a snapshot, and when the node was
// killed before it had removed everything. A later start does not bring it back.
func TestForgottenShards(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1, 2)
	next := c.open(0, 1, 2)
	c.writer("w", id, 0).append(40, "x")
	c.writer("v", next, 0).append(3, "y")
	for _, shard := range []uint32{id, next} {
		c.seal(shard)
		c.full(shard, 0, 1, 2)
	}
	c.trim("x", c.tail())
	for i, m := range c.members {
		c.until(func() bool { return len(m.ids(id)) == 0 }, "node %d keeps segments", i)
		c.until(func() bool { return len(m.files(id)) == 2 }, "node %d has written nothing down", i)
	}
	c.disconnect(1)
	late, between := c.members[2].fs.KillClone(), c.members[0].fs.KillClone() // still have the files
	ef := c.propose(sequencer.Entry{Kind: sequencer.KindForget, Shards: []sequencer.ShardID{sequencer.ShardID(id)}, Floor: 1})
	require.True(t, ef.OK)
	gone := func(i int) {
		t.Helper()
		m := c.members[i]
		c.until(func() bool { return m.replica(id) == nil }, "node %d has not forgotten it", i)
		c.until(func() bool { return len(m.files(id)) == 0 }, "node %d keeps its files", i)
		c.until(func() bool { return !slices.Contains(c.last(m.addr).GetFull(), id) || !c.last(m.addr).GetFullChanged() })
		require.NotNil(t, m.replica(next))
	}
	gone(0)
	gone(2)
	c.compact()
	c.reconnect(1)
	gone(1)
	c.members[2].lose(late)
	c.members[2].start()
	gone(2)
	// The table is written and the files still exist: a kill between the two.
	c.until(func() bool { return c.members[0].saved().GetIndex() >= ef.Index })
	table, err := files.Dir{FS: c.members[0].fs, Path: "d"}.Read(tableName)
	require.NoError(t, err)
	require.NoError(t, files.Dir{FS: between, Path: "d"}.Write(tableName, table))
	c.members[0].lose(between)
	c.members[0].start()
	require.Nil(t, c.members[0].replica(id))
	gone(0)
	for i, m := range c.members {
		m.restart()
		gone(i)
	}
	for _, m := range c.members {
		names, err := m.fs.List("d")
		require.NoError(t, err)
		require.LessOrEqual(t, len(slices.DeleteFunc(names, func(n string) bool { return !strings.Contains(n, "-0000") })), 2, "%v", names)
	}
	for i := range c.members {
		got, err := c.read(i, next, "y", 1)
		require.NoError(t, err)
		require.Len(t, got, 3)
	}
}
