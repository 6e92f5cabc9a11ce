package server

import (
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// forget drops replicas, with their files, of shards that have been removed from the table because
// all their records are trimmed. Cursors on them end; their clients learn the reason from the
// metalog.
func (n *Node) forget(ids []uint32) {
	for _, id := range ids {
		r := n.replica(id)
		if r == nil {
			continue
		}
		n.mu.Lock()
		delete(n.replicas, id)
		n.mu.Unlock()
		n.leader.Forget(id)
		r.put(item{call: (*loop).retire}) // a replica that has ended has a successor, which is dropped, too
	}
}

// removeShard deletes a shard's files; r is its replica, nil if there is none.
func (n *Node) removeShard(id uint32, r *replica) error {
	var ids []segment.ID
	for _, info := range n.store.Segments() {
		if info.ID.Shard != id {
			continue
		}
		ids = append(ids, info.ID)
		if r != nil {
			if err := r.disk.Index.Remove(info.ID); err != nil {
				return err
			}
		}
	}
	if err := n.store.Delete(ids...); err != nil {
		return err
	}
	for _, name := range []string{orderName(id), writersName(id)} {
		if err := n.files().Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// retire ends the replica of a forgotten shard.
func (r *loop) retire() {
	r.shutDown(sharedlog.Errorf(sharedlog.KindClosed, "shard %d was forgotten: all its records are trimmed", r.id))
	r.unsavedWriters = false
	if err := r.n.removeShard(r.id, r.replica); err != nil {
		r.n.stop(err)
	}
	r.setEnded()
}
