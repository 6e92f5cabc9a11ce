package faulttest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
)

// replace replaces a sequencer that is lost for good, as an operator does; it calls meanwhile once
// the new one has started.
func replace(t *testing.T, c *proctest.Cluster, lost int, meanwhile func()) {
	id := c.Join()
	meanwhile()
	out, err := c.Run("log", "sequencers", "add", "--id", fmt.Sprint(id), "--addr", c.Sequencers[id-1])
	require.NoError(t, err, out)
	require.Contains(t, out, "votes")
	out, err = c.Run("log", "sequencers", "remove", "--id", fmt.Sprint(lost+1))
	require.NoError(t, err, out)
	require.Contains(t, out, "is removed")
}

func lose(t *testing.T, c *proctest.Cluster, i int) {
	name := fmt.Sprint("sequencer", i)
	c.Kill(name)
	require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, name)))
}

// Sequencers are lost with their data and replaced, one after the other, while appends continue,
// until none of the original ones is left; once the leader is killed in the middle. Nothing
// acknowledged is lost. A restarted storage node finds the new sequencers, and a sequencer that
// comes back without its data is refused.
func TestSequencersAreReplaced(t *testing.T) {
	c := proctest.Start(t, binaries, 3)
	log := c.Open()
	l := newLoad(t, log, 6)
	l.progress(100)

	lose(t, c, 1)
	c.Restart("sequencer1") // as a supervisor does
	replace(t, c, 1, func() { l.progress(100) })
	l.progress(100)

	lose(t, c, 0)
	replace(t, c, 0, func() {
		lead := c.Leader()
		c.Kill(lead)
		c.Restart(lead)
	})
	l.progress(100)

	replace(t, c, 2, func() {}) // this one works, and ends by itself
	l.progress(100)

	c.Kill("storage1")
	c.Restart("storage1") // with the addresses of the first three only
	l.progress(200)
	out, err := c.Run("log", "sequencers", "list")
	require.NoError(t, err, out)
	for id := 4; id <= 6; id++ {
		require.Contains(t, out, fmt.Sprintf("\n%d ", id))
	}
	require.NotContains(t, out, "\n3 ")
	b, err := os.ReadFile(filepath.Join(c.Dir, "sequencer1.log"))
	require.NoError(t, err)
	require.Contains(t, string(b), "log sequencers remove --id 2")
	l.check(c.Open())
}
