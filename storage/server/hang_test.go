package server

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// hang blocks the calls of a kind to the segments on a node's disk until the returned function is
// called.
func (m *member) hang(kind vfs.OpKind) (release func()) {
	released := make(chan struct{})
	m.fail(func(op vfs.Op) error {
		if op.Kind == kind && strings.Contains(op.Path, "segments") {
			<-released
		}
		return nil
	})
	release = sync.OnceFunc(func() {
		m.fail(nil)
		close(released)
	})
	m.c.t.Cleanup(release)
	return release
}

// A node's disk hangs while the process still sends reports: the leader learns that the replica is
// behind and makes no progress, and readers are sent to another one. When the disk responds again,
// the replica continues.
func TestDiskThatHangs(t *testing.T) {
	t.Parallel()
	for _, who := range []struct {
		name string
		node int
	}{{"primary", 0}, {"backup", 1}} {
		t.Run(who.name, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			id := c.open(0, 1, 2)
			w := c.writer("w", id, 0)
			want := w.append(10, "x")
			m := c.members[who.node]
			c.until(func() bool { return m.replica(id).onDisk() == 10 })
			c.healthy(who.node, id, ok)
			type result struct {
				lsns []sharedlog.LSN
				err  error
			}
			read := make(chan result, 1)
			go func() {
				lsns, err := m.session(id, "x", 1)
				read <- result{lsns, err}
			}()
			c.until(func() bool { return m.node.sessions.Open() == 1 })
			release := m.hang(vfs.OpWrite)
			w.send([]byte("hangs"), "x")
			if who.node > 0 { // a majority has the group
				for _, o := range w.answers(1) {
					require.NoError(t, o.Err)
				}
			}
			c.healthy(who.node, id, behind)
			r := <-read
			require.ErrorIs(t, r.err, sharedlog.ErrClosed)
			require.ErrorContains(t, r.err, "its disk does not answer")
			require.Equal(t, want, r.lsns)
			_, err := m.session(id, "x", 1)
			require.ErrorContains(t, err, "its disk does not answer", "nor is one opened")
			release()
			c.healthy(who.node, id, ok)
			if who.node == 0 {
				require.NoError(t, w.answers(1)[0].Err)
			}
			w.append(5, "x")
			c.seal(id)
			c.full(id, 0, 1, 2)
			got, err := c.read(who.node, id, "x", 1)
			require.NoError(t, err)
			require.Len(t, got, 16)
		})
	}
}

// Under --fsync interval nothing waits for a sync. A sync that hangs counts as no progress all the
// same.
func TestSyncThatHangs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	w.append(1, "x")
	c.healthy(1, id, ok)
	release := c.members[1].hang(vfs.OpSync)
	w.append(5, "x")
	c.healthy(1, id, behind)
	release()
	c.healthy(1, id, ok)
}
