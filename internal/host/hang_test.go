package host_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// The disk of one node of three hangs forever while the process still sends messages: its shards
// are replaced, all writers continue, and a reader misses nothing.
func TestDiskHangsForGood(t *testing.T) {
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	var hangs sync.Map // by node
	c := newLocalAs(t, 1, 3, func(c *local) {
		c.settings = func(s *host.Sequencer) { s.Stuck = 500 * time.Millisecond }
		c.disk = func(i int) vfs.FS {
			return vfs.Inject(vfs.OS, func(op vfs.Op) error {
				if _, on := hangs.Load(i); on && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpSync) {
					<-released
				}
				return nil
			})
		}
	})
	t.Cleanup(release) // before the cluster is stopped
	c.primaries(t, 3)
	l := c.open(t)
	defer l.Close()
	want := load(t, l, "before", 5)
	r, err := l.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}})
	require.NoError(t, err)
	defer r.Close()
	hangs.Store(1, true)
	began := time.Now()
	for i := range 12 { // some of them have their home there
		want = append(want, load(t, l, fmt.Sprint("while", i, "."), 5)...)
	}
	t.Logf("all writers continued after %v", time.Since(began))
	var got []string
	for len(got) < len(want) {
		b, err := r.Next(t.Context())
		require.NoError(t, err)
		for _, e := range b.Entries {
			got = append(got, string(e.Data))
		}
	}
	require.ElementsMatch(t, want, got)
}
