package server

import (
	"context"

	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/server/leader"
	"tailrace.dev/tailrace/storage/server/repair"
	"tailrace.dev/tailrace/storage/server/session"
	"tailrace.dev/tailrace/storage/server/sublog"
)

// What the parts of a node, which are packages of their own, see of the node and its replicas.

// spawn runs f on a goroutine of its own. Its context ends when the node starts to stop.
func (n *Node) spawn(f func(ctx context.Context)) {
	n.wg.Go(func() {
		ctx, cancel := n.untilQuit()
		defer cancel()
		f(ctx)
	})
}

// spawnFollowing runs f when the node has received the metalog; an error of f stops the node.
func (n *Node) spawnFollowing(f func(ctx context.Context) error) {
	n.spawn(func(ctx context.Context) {
		select {
		case <-n.following:
		case <-ctx.Done():
			return
		}
		if err := f(ctx); err != nil {
			n.stop(err)
		}
	})
}

// makeParts creates the parts that exist before the node's data is opened.
func (n *Node) makeParts() {
	n.leader = leader.New(leader.Options{
		Addr: n.opt.Addr, Zone: n.opt.Zone, Incarnation: n.incarnation, Level: featureLevel, Dialer: n.opt.Dialer, Logger: n.opt.Logger, Table: &n.table,
		Replicas: func() (all []leader.Replica) {
			for _, r := range n.all() {
				all = append(all, r)
			}
			return all
		},
		Space: func() (free int64, readonly bool) {
			free, _ = n.room.Space()
			return free, n.room.ReadOnly()
		},
	})
	n.mender = repair.NewMender(n.repairOptions())
	n.sessions = session.NewServer(session.Options{
		Addr: n.opt.Addr, Table: &n.table, ClientTags: n.opt.ClientTags, Quit: n.quit,
		Replica: func(shard uint32) *session.Replica {
			if r := n.replica(shard); r != nil {
				return &r.shown
			}
			return nil
		},
	})
}

func (n *Node) repairOptions() repair.Options {
	return repair.Options{
		Node: n.opt.Addr, Dialer: n.opt.Dialer, Logger: n.opt.Logger, Table: &n.table,
		Replica: func(shard uint32) repair.Replica {
			if r := n.replica(shard); r != nil {
				return r
			}
			return nil
		},
	}
}

// startParts starts the parts' goroutines.
func (n *Node) startParts() {
	n.spawnFollowing(n.leader.Run)
	n.spawnFollowing(func(ctx context.Context) error { return n.mender.Run(ctx, n.store) })
	n.scrubber = repair.NewScrubber(n.repairOptions(), repair.ScrubOptions{
		FS: n.opt.FS, Dir: n.opt.Dir, Rate: n.opt.ScrubRate, Pause: n.opt.ScrubPause, Quit: n.quit,
	}, n.store, n.mender)
	n.spawnFollowing(n.scrubber.Run)
}

// ID returns the replica's shard.
func (r *replica) ID() uint32 { return r.id }

// Log returns what the replica has on disk.
func (r *replica) Log() *sublog.Sublog { return r.disk }

// Addrs returns the addresses of the shard's replicas.
func (r *replica) Addrs() []string { return r.description().GetAddrs() }

// Stale reports whether the replica waits for a copy of the shard.
func (r *replica) Stale() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase == storage.PhaseStale
}

// Ordered returns the length with outcomes.
func (r *replica) Ordered() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == storage.PhaseFull {
		return r.shard.GetLength()
	}
	return r.sizes.assigned
}

// Current reports whether the node still has this replica of the shard.
func (r *replica) Current() bool { return r.n.replica(r.id) == r }

// description returns the metalog's description of the shard.
func (r *replica) description() *logpb.Shard {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shard
}
