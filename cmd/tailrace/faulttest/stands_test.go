package faulttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/sharedlog"
)

// A storage node is disconnected from all others, but not from a reader, and no spare node can
// replace it: it does not learn that its shard is sealed, and delivers nothing more. The reader
// continues at the other replicas.
func TestReaderOnANodeThatIsCutOff(t *testing.T) {
	c := proctest.Start(t, binaries, 3)
	log := c.Open()
	want := appendLines(t, log, "a", 20)
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}})
	require.NoError(t, err)
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []string
	read := func() {
		for len(got) < len(want) {
			b, err := r.Next(ctx)
			require.NoError(t, err, "it hangs behind %d of %d records", len(got), len(want))
			for _, e := range b.Entries {
				got = append(got, string(e.Data))
			}
		}
	}
	read()
	isolated := c.PID("storage2")
	for _, name := range c.Running() {
		if name != "storage2" {
			c.Proxies[c.Storage[2]].CutFrom(c.PID(name), true)
		}
	}
	for addr, p := range c.Proxies {
		if addr != c.Storage[2] {
			p.CutFrom(isolated, true)
		}
	}
	want = append(want, appendLines(t, log, "b", 20)...)
	read()
	require.ElementsMatch(t, want, got)
}
