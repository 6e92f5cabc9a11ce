package server

import (
	"time"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// readOnlyGrace is how long a node whose disk is nearly full keeps accepting appends. Meanwhile the
// leader seals its shards if their writers can use other nodes, so that no append is refused.
const readOnlyGrace = 2 * time.Second

// watchDisk checks how much of the disk is free.
func (n *Node) watchDisk() {
	if n.room.Look() {
		n.logReadOnly()
	}
}

func (n *Node) logReadOnly() {
	free, reserve := n.room.Space()
	if n.room.ReadOnly() {
		n.opt.Logger.Warn("the disk is nearly full: the node is read-only. Make room, or trim", "node", n.opt.Addr, "dir", n.opt.Dir, "free", vfs.Size(free), "reserve", vfs.Size(reserve))
		return
	}
	n.opt.Logger.Info("there is room on the disk again: the node takes appends", "node", n.opt.Addr, "dir", n.opt.Dir, "free", vfs.Size(free), "reserve", vfs.Size(reserve))
}

// noRoom returns the reason why queued groups must not be written because the disk is nearly full,
// nil if they may. A backup writes until the disk is full, since a primary that can write should
// not wait for it; but no replica uses the space that the ballast was removed for.
func (r *replica) noRoom() error {
	if !r.primary && !r.n.room.Given() {
		return nil
	}
	if why := r.n.room.Refusal(); why != "" {
		return sharedlog.Errorf(sharedlog.KindReadOnly, "node %s: %s", r.n.opt.Addr, why)
	}
	return nil
}
