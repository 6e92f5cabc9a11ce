package fakenet

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Settings of a network.
type Settings struct {
	// Rand decides the latencies and the times at which ends learn of breaks.
	Rand *rand.Rand
	// Latency is the least time that a message takes, Jitter the most that is added to it.
	Latency, Jitter time.Duration
	// Window is how many bytes one direction of a stream may have in flight before Send waits; 0:
	// Send never waits.
	Window int
	// Keepalive is the approximate time after which a connection over a dead link breaks; 0: 12 s.
	Keepalive time.Duration
	// DialTimeout is the time limit of a dial; 0: 1 s.
	DialTimeout time.Duration
}

// Network carries streams between hosts. Safe for concurrent use.
type Network struct {
	set Settings

	mu    sync.Mutex // guards everything below, and the fields of hosts, conns and streams
	hosts map[string]*Host
	links map[[2]string]*link
	conns []*conn
	stats Stats
}

// Stats count what a network has done.
type Stats struct {
	Messages, Bytes  int
	Opened, Broken   int // connections
	Refused, Blocked int // dials that failed, Sends that waited
}

// link is one direction between two names.
type link struct {
	cut     bool
	since   time.Time     // of the cut
	resumes time.Time     // after a cut, when TCP retransmits
	slow    time.Duration // more latency
	perByte time.Duration
	changed chan struct{} // closed when one of these changes
}

// New returns a network without hosts.
func New(s Settings) *Network {
	s.Keepalive = cmp.Or(s.Keepalive, 12*time.Second)
	s.DialTimeout = cmp.Or(s.DialTimeout, time.Second)
	if s.Rand == nil {
		s.Rand = rand.New(rand.NewPCG(1, 1))
	}
	return &Network{set: s, hosts: map[string]*Host{}, links: map[[2]string]*link{}}
}

// Stats returns the counts so far.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// link returns the link from one name to another. Called with mu held.
func (n *Network) link(from, to string) *link {
	k := [2]string{from, to}
	l := n.links[k]
	if l == nil {
		l = &link{changed: make(chan struct{})}
		n.links[k] = l
	}
	return l
}

func (l *link) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// carried reports whether an item that should arrive at a given time has arrived now. If not, it
// returns the time until which it certainly has not (zero: until the link changes).
func (l *link) carried(at, now time.Time) (bool, time.Time) {
	late := at.After(l.since) // what came before the cut has arrived
	switch {
	case at.After(now):
		return false, at
	case l.cut && late:
		return false, time.Time{}
	case l.resumes.After(now) && late:
		return false, l.resumes
	}
	return true, time.Time{}
}

// Cut cuts the link from one host to another, or heals it. Connections over a link that stays cut
// break after a while.
func (n *Network) Cut(from, to string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(from, to)
	if l.cut == cut {
		return
	}
	now := time.Now()
	l.cut, l.since = cut, now
	if !cut {
		l.resumes = now.Add(n.between(0, 200*time.Millisecond))
	}
	l.signal()
	if !cut {
		return
	}
	// All connections that exist then: those made meanwhile need both directions, too.
	time.AfterFunc(n.set.Keepalive+n.between(0, n.set.Keepalive/4), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !l.cut || !l.since.Equal(now) {
			return
		}
		for _, c := range slices.Clone(n.conns) {
			if c.uses(from, to) {
				c.fail(0, errBroken)
				c.fail(1, errBroken)
			}
		}
	})
}

// Slow adds latency to messages from one host to another, and time for each byte.
func (n *Network) Slow(from, to string, latency, perByte time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(from, to)
	l.slow, l.perByte = latency, perByte
	l.signal()
}

// Heal heals all links and removes their added latency.
func (n *Network) Heal() {
	n.mu.Lock()
	keys := make([][2]string, 0, len(n.links))
	for k := range n.links {
		keys = append(keys, k)
	}
	n.mu.Unlock()
	slices.SortFunc(keys, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, k := range keys {
		n.Cut(k[0], k[1], false)
		n.Slow(k[0], k[1], 0, 0)
	}
}

// Break breaks the connections between two hosts, like a middlebox that forgets them: messages in
// flight are lost.
func (n *Network) Break(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range slices.Clone(n.conns) {
		if c.uses(a, b) || c.uses(b, a) {
			first := n.set.Rand.IntN(2)
			c.fail(first, errBroken)
			c.failLater(1-first, n.latency(c.from(first), c.from(1-first), 0))
		}
	}
}

// between returns a random duration in [lo, hi). Called with mu held.
func (n *Network) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(n.set.Rand.Int64N(int64(hi-lo)))
}

// latency draws the time that a message of some bytes takes. Called with mu held.
func (n *Network) latency(from, to string, bytes int) time.Duration {
	l := n.link(from, to)
	d := n.set.Latency + l.slow + time.Duration(bytes)*l.perByte
	if n.set.Jitter > 0 {
		d += n.between(0, n.set.Jitter/8)
		if n.set.Rand.IntN(16) == 0 {
			d += n.between(0, n.set.Jitter)
		}
	}
	return d
}
