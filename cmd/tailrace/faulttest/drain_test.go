package faulttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
)

// An operator drains and removes a storage node while appends continue: the removal is refused as
// long as the node is needed, the process ends by itself and says why, and once its disk is gone
// every acknowledged record is on the other nodes.
func TestAStorageNodeIsDrainedAndRemoved(t *testing.T) {
	c := proctest.Start(t, binaries, 3)
	log := c.Open()
	l := newLoad(t, log, 6)
	l.progress(100)
	gone := c.Storage[0]
	refused := func(why string, args ...string) {
		t.Helper()
		out, err := c.Run(args...)
		require.Error(t, err, out)
		require.Contains(t, out, why)
	}
	refused("start 1 more first", "log", "drain", gone)
	refused("is in use", "log", "remove", gone)
	refused("is known", "log", "drain", "127.0.0.1:1")
	refused("which storage node?", "log", "drain")

	c.AddNode()
	require.Eventually(t, func() bool { // the leader has to notice the new one
		out, err := c.Run("log", "drain", gone, "--wait=false")
		return err == nil && strings.Contains(out, "is being drained")
	}, patience, 10*time.Millisecond)
	out, err := c.Run("log", "remove", gone)
	if err != nil { // else it took no time
		require.Contains(t, out, "is still needed")
	}
	out, err = c.Run("log", "drain", gone)
	require.NoError(t, err, out)
	require.Contains(t, out, "holds nothing that is needed\nit can be removed: tailrace log remove "+gone)
	l.progress(100)
	out, err = c.Run("log", "remove", gone)
	require.NoError(t, err, out)
	refused("was removed, which is for good", "log", "drain", gone)
	require.Contains(t, c.Ended("storage0"), "was removed from the cluster")
	require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, "storage0")))

	out, err = c.Run("log", "nodes")
	require.NoError(t, err, out)
	require.NotContains(t, out, gone)
	for _, addr := range c.Storage[1:] {
		require.Regexp(t, addr+` +- +active`, out)
	}
	c.Kill("storage1") // and one is down for a while
	l.progress(100)
	c.Restart("storage1")
	l.check(c.Open())
}
