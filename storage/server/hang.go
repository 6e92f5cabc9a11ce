package server

import (
	"sync/atomic"
	"time"
)

// A disk can hang: a write or a sync does not return, for minutes or for ever, while the
// process goes on speaking. Whoever waits for the replicas on it must hear of it: the
// leader, which then replaces them, and readers, which go to other replicas.

const (
	// watchEvery is how often it is looked whether turns come round.
	watchEvery = 100 * time.Millisecond
	// turnHangs is after how long a turn that does not come round is taken to hang, and
	// syncHangs a sync of what was written under --fsync interval, which nobody waits for.
	turnHangs = time.Second
	syncHangs = 5 * time.Second
)

// watch finds out which replicas hang.
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

// progress is what is known of a replica's turns. Under replica.mu.
type progress struct {
	serving bool   // a turn has taken items and not come to its end
	turns   uint64 // that did
	seen    uint64 // turns, as of since: when it last had nothing to do, or got on
	since   time.Time
	length  uint64 // what the leader is told that it holds, while it hangs
	hangs   bool   // so that the leader is to know
}

// watch looks whether the replica's turns come round, and whether what they have written
// is made durable (sync: it is not).
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
	r.stands.Store(turn)
	switch {
	case changed && hangs:
		r.n.opt.Logger.Warn("the disk does not answer: a replica stands still", "node", r.n.opt.Addr, "shard", r.id)
	case changed:
		r.n.opt.Logger.Info("the disk answers again: the replica goes on", "node", r.n.opt.Addr, "shard", r.id)
	}
}

// moment is when something began, nil while it does not go on. It is of the monotonic clock:
// a step of the time of day makes no disk hang.
type moment struct{ at atomic.Pointer[time.Time] }

func (m *moment) begin() {
	now := time.Now()
	m.at.Store(&now)
}

func (m *moment) end() { m.at.Store(nil) }

// since returns for how long it has gone on.
func (m *moment) since(now time.Time) time.Duration {
	if at := m.at.Load(); at != nil {
		return now.Sub(*at)
	}
	return 0
}
