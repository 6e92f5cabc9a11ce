package faulttest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
)

// story is one fault during a load.
type story struct {
	name string
	// ack and seen are the longest gaps that the design permits. The measured gaps are reported,
	// not asserted, because machines are shared.
	ack, seen time.Duration
	fault     func(c *proctest.Cluster, l *load)
}

// play injects a fault and measures the longest time without an acknowledgement and without a
// delivery around it.
func play(t *testing.T, s story) {
	c := proctest.Start(t, binaries, 4)
	l := newLoad(t, c.Open(), 8)
	l.progress(100)
	l.gaps(true)
	s.fault(c, l)
	l.progress(100)
	ack, seen := l.gaps(false)
	t.Logf("%s: longest gap in acknowledgements %v (target %v), in deliveries %v (target %v)", s.name, ack.Round(time.Millisecond), s.ack, seen.Round(time.Millisecond), s.seen)
	l.check(c.Open())
}

// Whatever happens to processes, as long as majorities remain: every acknowledged append is
// readable once, in one order for all readers, and no group is incomplete.
func TestFaults(t *testing.T) {
	stories := []story{
		{"sequencer leader killed", time.Second, time.Second, func(c *proctest.Cluster, l *load) {
			lead := c.Leader()
			c.Kill(lead)
			l.progress(100)
			c.Restart(lead)
		}},
		{"primary killed", 500 * time.Millisecond, 500 * time.Millisecond, func(c *proctest.Cluster, l *load) {
			p := c.Primary("w0")
			c.Kill(p)
			l.progress(100)
			c.Restart(p)
		}},
		{"a node killed, and back without its data", 500 * time.Millisecond, 500 * time.Millisecond, func(c *proctest.Cluster, l *load) {
			c.Kill("storage1")
			l.progress(100)
			require.NoError(l.t, os.RemoveAll(filepath.Join(c.Dir, "storage1")))
			c.Restart("storage1")
			l.progress(100)
		}},
		{"leader and a node killed together", 1500 * time.Millisecond, 1500 * time.Millisecond, func(c *proctest.Cluster, l *load) {
			lead := c.Leader()
			c.Kill(lead)
			c.Kill("storage0")
			l.progress(100)
			c.Restart(lead)
			c.Restart("storage0")
		}},
		{"primary stopped and continued", 1500 * time.Millisecond, 1500 * time.Millisecond, func(c *proctest.Cluster, l *load) {
			p := c.Primary("w0")
			c.Signal(p, syscall.SIGSTOP)
			l.progress(150)
			c.Signal(p, syscall.SIGCONT)
			l.progress(100)
		}},
		{"sequencer leader stopped and continued", time.Second, time.Second, func(c *proctest.Cluster, l *load) {
			lead := c.Leader()
			c.Signal(lead, syscall.SIGSTOP)
			l.progress(100)
			c.Signal(lead, syscall.SIGCONT)
			l.progress(100)
		}},
		{"every process killed at once, and back", 0, 0, func(c *proctest.Cluster, l *load) {
			var names []string
			for i := range c.Sequencers {
				names = append(names, fmt.Sprint("sequencer", i))
			}
			for i := range c.Storage {
				names = append(names, fmt.Sprint("storage", i))
			}
			for _, n := range names {
				c.Kill(n)
			}
			for _, n := range names {
				c.Restart(n)
			}
			l.progress(100)
		}},
		{"a node that receives nothing", 1500 * time.Millisecond, 1500 * time.Millisecond, func(c *proctest.Cluster, l *load) {
			var i int
			_, err := fmt.Sscanf(c.Primary("w0"), "storage%d", &i)
			require.NoError(l.t, err)
			p := c.Proxies[c.Storage[i]]
			p.Cut(true, true)
			l.progress(150)
			p.Cut(false, false)
			l.progress(100)
		}},
		{"slow links to a node", 0, 0, func(c *proctest.Cluster, l *load) {
			p := c.Proxies[c.Storage[1]]
			p.Slow(20 * time.Millisecond)
			l.progress(100)
			p.Slow(0)
			l.progress(100)
		}},
		{"a leader that receives nothing", time.Second, time.Second, func(c *proctest.Cluster, l *load) {
			lead := c.Leader()
			var i int
			_, err := fmt.Sscanf(lead, "sequencer%d", &i)
			require.NoError(l.t, err)
			p := c.Proxies[c.Sequencers[i]]
			p.Cut(true, false)
			l.progress(100)
			p.Cut(false, false)
			l.progress(100)
		}},
	}
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) { play(t, s) })
	}
}
