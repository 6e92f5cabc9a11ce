// Package client is the log of a cluster, as a process sees it: sharedlog.Log over
// connections to sequencers and storage nodes.
//
//	Append ──▶ home (a shard's primary) ──▶ answers, or the seal: resolve, next home
//	Reader ◀── merge by LSN ◀── one cursor a shard, in a session a node
//	Get, CompareAndSet, Trim, Tail ──▶ the sequencers' leader
//	shards ◀── follow ── any sequencer
//
// # Appending
//
// A writer has one home shard at a time, spread by hash over the open ones; its groups
// go there in order, over one stream, and those without an answer are sent again, in
// order, when the stream breaks: the primary answers a repeated number instead of
// taking it twice. When the shard's seal is in the order, a full replica says what
// became of each number without an answer; what is not there never will be, and goes
// to the next home, first number first (promise 6). Nothing is sent to a second shard
// before. So an outcome stays unknown only if the log is closed first.
//
// # Reading
//
// A reader has a cursor on each shard that may hold something at or above its
// position, on any replica; it shows entries below the lowest frontier, when it
// has cursors on all shards that were opened below that (pitfall L2). A replica that is
// silent is left for the next one, from where its last batch ended.
package client
