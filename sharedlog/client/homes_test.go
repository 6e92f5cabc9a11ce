package client

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that appends for a long time uses many shards, and keeps nothing of those that were
// sealed.
func TestSealedHomesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		c.open()
		l := c.connect(Options{})
		defer l.Close()
		w := numbered{name: "w"}
		for i := range 20 {
			w.append(l, fmt.Sprint("on its way ", i))
			w.append(l, fmt.Sprint(i))
			synctest.Wait()
			old := c.isOpen()[0]
			old.order(1)
			c.open()
			old.seal()
			elapse(time.Second)
			c.isOpen()[0].order(1000)
			synctest.Wait()
		}
		for i, p := range w.pending {
			require.True(t, done(p), i)
			_, err := p.Outcome()
			require.NoError(t, err)
		}
		l.appending.mu.Lock()
		defer l.appending.mu.Unlock()
		require.LessOrEqual(t, len(l.appending.homes), 1)
	})
}
