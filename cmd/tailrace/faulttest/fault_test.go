package faulttest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// story is one fault, in the middle of a load.
type story struct {
	name string
	// ack and seen are the longest gaps that the design allows; what is measured is
	// reported, not asserted: machines are shared.
	ack, seen time.Duration
	fault     func(c *cluster, l *load)
}

// fault plays a fault and measures the longest time without an acknowledgement and
// without a delivery around it.
func play(t *testing.T, s story) {
	c := start(t, 4)
	l := newLoad(t, c.open(), 8)
	l.progress(300)
	l.gaps(true)
	s.fault(c, l)
	l.progress(300)
	ack, seen := l.gaps(false)
	t.Logf("%s: longest gap in acknowledgements %v (target %v), in deliveries %v (target %v)", s.name, ack.Round(time.Millisecond), s.ack, seen.Round(time.Millisecond), s.seen)
	l.check(c.open())
}

// Whatever happens to processes, as long as majorities are left: every acknowledged
// append is readable once, in one order for all readers, and no group is half there.
func TestFaults(t *testing.T) {
	stories := []story{
		{"sequencer leader killed", time.Second, time.Second, func(c *cluster, l *load) {
			lead := c.leader()
			c.kill(lead)
			l.progress(300)
			c.restart(lead)
		}},
		{"primary killed", 500 * time.Millisecond, 500 * time.Millisecond, func(c *cluster, l *load) {
			p := c.primary("w0")
			c.kill(p)
			l.progress(300)
			c.restart(p)
		}},
		{"a node killed, and back without its data", 500 * time.Millisecond, 500 * time.Millisecond, func(c *cluster, l *load) {
			c.kill("storage1")
			l.progress(100)
			require.NoError(c.t, os.RemoveAll(filepath.Join(c.dir, "storage1")))
			c.restart("storage1")
			l.progress(300)
		}},
		{"leader and a node killed together", 1500 * time.Millisecond, 1500 * time.Millisecond, func(c *cluster, l *load) {
			lead := c.leader()
			c.kill(lead)
			c.kill("storage0")
			l.progress(300)
			c.restart(lead)
			c.restart("storage0")
		}},
		{"primary stopped and continued", 1500 * time.Millisecond, 1500 * time.Millisecond, func(c *cluster, l *load) {
			p := c.primary("w0")
			c.signal(p, syscall.SIGSTOP)
			l.progress(500)
			c.signal(p, syscall.SIGCONT)
			l.progress(300)
		}},
		{"sequencer leader stopped and continued", time.Second, time.Second, func(c *cluster, l *load) {
			lead := c.leader()
			c.signal(lead, syscall.SIGSTOP)
			l.progress(300)
			c.signal(lead, syscall.SIGCONT)
			l.progress(300)
		}},
		{"every process killed at once, and back", 0, 0, func(c *cluster, l *load) {
			var names []string
			for i := range c.sequencers {
				names = append(names, fmt.Sprint("sequencer", i))
			}
			for i := range c.storage {
				names = append(names, fmt.Sprint("storage", i))
			}
			for _, n := range names {
				c.kill(n)
			}
			for _, n := range names {
				c.restart(n)
			}
			l.progress(300)
		}},
		{"a node that hears nobody", 1500 * time.Millisecond, 1500 * time.Millisecond, func(c *cluster, l *load) {
			var i int
			_, err := fmt.Sscanf(c.primary("w0"), "storage%d", &i)
			require.NoError(c.t, err)
			p := c.proxies[c.storage[i]]
			p.cut(true, true)
			l.progress(500)
			p.cut(false, false)
			l.progress(300)
		}},
		{"slow links to a node", 0, 0, func(c *cluster, l *load) {
			p := c.proxies[c.storage[1]]
			p.slow(20 * time.Millisecond)
			l.progress(200)
			p.slow(0)
			l.progress(300)
		}},
		{"a leader that hears nobody", time.Second, time.Second, func(c *cluster, l *load) {
			lead := c.leader()
			var i int
			_, err := fmt.Sscanf(lead, "sequencer%d", &i)
			require.NoError(c.t, err)
			p := c.proxies[c.sequencers[i]]
			p.cut(true, false)
			l.progress(300)
			p.cut(false, false)
			l.progress(300)
		}},
	}
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) { play(t, s) })
	}
}
