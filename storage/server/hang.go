package server

import (
	"sync/atomic"
	"time"
)

// A disk can hang: a write or a sync does not return, for minutes or forever, while the process
// still sends its reports. The leader must learn of it to replace the replicas on the disk, and
// readers must use other replicas.

const (
	// watchEvery is the interval at which the node checks that turns complete.
	watchEvery = 100 * time.Millisecond
	// turnHangs is the time without a completed turn after which a replica hangs. syncHangs is the
	// same for a sync under --fsync interval, which nothing waits for.
	turnHangs = time.Second
	syncHangs = 5 * time.Second
)

// watch detects replicas that hang.
func (n *Node) watch() {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-n.quit:
			return
		case now := <-t.C:
			sync := n.syncBegan.since(now) >= syncHangs
			for _, r := range n.all() {
				r.watch(now, sync)
			}
		}
	}
}

// progress describes a replica's turns. It is protected by replica.mu.
type progress struct {
	serving bool   // a turn has taken items and has not completed
	turns   uint64 // completed turns
	seen    uint64 // turns as of since, when the replica was last idle or made progress
	since   time.Time
	length  uint64 // the length reported to the leader while the replica hangs
	hangs   bool   // as reported to the leader
}

// watch checks whether the replica's turns complete, and whether the data that they write becomes
// durable (sync is true if it does not).
func (r *replica) watch(now time.Time, sync bool) {
	r.mu.Lock()
	p := &r.progress
	if r.ended || !p.serving && len(r.inbox) == 0 || p.turns != p.seen || p.since.IsZero() {
		p.seen, p.since = p.turns, now
	}
	turn := now.Sub(p.since) >= turnHangs
	hangs := turn || sync && r.appender != nil
	if hangs && !p.hangs {
		p.length = r.sizes.length
	}
	changed := hangs != p.hangs
	p.hangs = hangs
	r.mu.Unlock()
	r.shown.Hung.Store(turn)
	switch {
	case changed && hangs:
		r.n.opt.Logger.Warn("the disk does not answer: a replica stands still", "node", r.n.opt.Addr, "shard", r.id)
	case changed:
		r.n.opt.Logger.Info("the disk answers again: the replica continues", "node", r.n.opt.Addr, "shard", r.id)
	}
}

// moment is the start of an operation, nil while none is running. It uses the monotonic clock: a
// step of the wall clock must not look like a hanging disk.
type moment struct{ at atomic.Pointer[time.Time] }

func (m *moment) begin() {
	now := time.Now()
	m.at.Store(&now)
}

func (m *moment) end() { m.at.Store(nil) }

// since returns how long the operation has been running.
func (m *moment) since(now time.Time) time.Duration {
	if at := m.at.Load(); at != nil {
		return now.Sub(*at)
	}
	return 0
}
