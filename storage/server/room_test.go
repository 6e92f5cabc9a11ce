package server

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/server/files"
)

// fillUp appends until a group is refused, and returns the error.
func (w *writer) fillUp() error {
	w.c.t.Helper()
	for range 10_000 {
		w.send(make([]byte, 1000), "x")
		if err := w.answers(1)[0].Err; err != nil {
			w.number, w.opens = w.number-1, w.number == 1 // the number was released
			return err
		}
	}
	require.Fail(w.c.t, "nothing is refused")
	return nil
}

// count returns the number of a node's closed segments of a shard.
func (m *member) count(shard uint32) int {
	infos, _ := m.closed(shard)
	return len(infos)
}

// The disk of a node is full: trims pass, even if others use the freed space at once, and trimmed
// segments are deleted. Appends are accepted again when there is room for the ballast, too. The
// test repeats that several times, and with a restart on the full disk.
func TestAFullDiskTakesTrims(t *testing.T) {
	for _, restart := range []bool{false, true} {
		c := newCluster(t, 1, func(o *Options) { o.ReserveBytes = -1 })
		m := c.members[0]
		m.listed()
		for range 3 {
			id := c.open(0)
			w := c.writer("w", id, 0)
			_, used := m.fs.Used()
			m.fs.SetCapacity(used + 300<<10)
			require.ErrorIs(t, w.fillUp(), sharedlog.ErrFull)
			if restart {
				m.restart()
			}
			require.Greater(t, m.count(id), 2)
			_, used = m.fs.Used()
			m.fs.SetCapacity(used) // not a byte more, whatever was reserved for later
			c.trim("x", c.tail())
			c.until(func() bool { return m.count(id) <= 1 }, "nothing is deleted")
			c.seal(id)
			m.fs.SetCapacity(0)
			c.until(func() bool {
				_, err := m.fs.Stat(filepath.Join("d", "BALLAST"))
				return err == nil && !m.node.room.ReadOnly()
			}, "the ballast is not made again")
			c.full(id, 0)
		}
	}
}

// Less of a node's disk is free than the reserve: the leader learns of it, appends are refused
// after a while, with the place and the remedy; trims pass, and lead to appends being accepted
// again.
func TestReadOnly(t *testing.T) {
	const reserve = 1 << 20
	c := newCluster(t, 2, func(o *Options) { o.ReserveBytes = reserve })
	m := c.members[0]
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	w.append(1, "x")
	_, used := m.fs.Used()
	m.fs.SetCapacity(used + 2*reserve)
	err := w.fillUp()
	require.ErrorIs(t, err, sharedlog.ErrReadOnly)
	require.Regexp(t, `read-only: node 127\.0\.0\.1:\d+: the disk of d has \d.* KiB free, and 1\.0 MiB must stay free: make room on it, or trim the log; appends are accepted again when 1\.2 MiB are free$`, err.Error())
	c.until(func() bool { return c.last(m.addr).GetReadonly() }, "the leader is not told")
	require.Less(t, c.last(m.addr).GetFreeBytes(), uint64(reserve))
	require.False(t, c.last(c.members[1].addr).GetReadonly())
	st := m.node.Status()
	require.True(t, st.GetReadonly())
	require.EqualValues(t, reserve, st.GetReserveBytes())
	require.Greater(t, st.GetFreeBytes(), uint64(reserve/4), "the disk is not full")
	require.ErrorIs(t, w.fillUp(), sharedlog.ErrReadOnly)
	c.trim("x", c.tail())
	c.until(func() bool { return !c.last(m.addr).GetReadonly() })
	w.append(1, "x")
}

// A backup whose disk is nearly full accepts groups: its primary can write.
func TestReadOnlyBackup(t *testing.T) {
	c := newCluster(t, 2, func(o *Options) { o.ReserveBytes = 1 << 20 })
	id := c.open(0, 1)
	m := c.members[1]
	_, used := m.fs.Used()
	m.fs.SetCapacity(used + 400<<10)
	c.until(func() bool { return c.last(m.addr).GetReadonly() && m.node.room.Refusal() != "" })
	w := c.writer("w", id, 0)
	w.append(20, "x")
}

// A node of the previous layout is started while its disk is full: it creates its list of closed
// segments when there is room, and trims pass in the meantime.
func TestOlderLayoutOnAFullDisk(t *testing.T) {
	c := newCluster(t, 1, nil)
	m := c.members[0]
	id := c.open(0)
	w := c.writer("w", id, 0)
	w.append(40, "x")
	m.listed()
	m.end()
	require.NoError(t, files.Dir{FS: m.fs, Path: "d"}.Write("NODE", []byte(unlistedVersion+"\n"+m.addr+"\n\n")))
	for _, name := range []string{"segments/LIST-1", "segments/LIST-2", "BALLAST"} {
		require.NoError(t, m.fs.Remove(filepath.Join("d", name)))
	}
	_, used := m.fs.Used()
	m.fs.SetCapacity(used) // its files and nothing more
	m.start()
	require.Greater(t, m.count(id), 2)
	require.NotEmpty(t, m.node.room.Refusal())
	m.fs.SetCapacity(0)
	m.listed()
	m.restart()
	want := c.tail()
	got, err := drain(t, m.cursor(id, sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: 1, Until: want}))
	require.NoError(t, err)
	require.Len(t, got, 40)
}
