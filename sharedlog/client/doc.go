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
// A shard that is about to be sealed because it is to be replaced (it has grown large, a
// replica of it is lost) is known by a newer open shard on the same primary. A writer
// leaves it as soon as it has no group there without an answer; groups that come
// meanwhile are held. So the seal, which comes later, meets nobody, and an append waits
// no longer than for the answers to those before it. Homes are chosen by the primary's
// address, so that most writers stay at the same node.
//
// # Reading
//
// A reader has a cursor on each shard that may have records at or above its position,
// on any replica, and shows entries below its frontier. A replica that is silent is left
// for the next one, from where its last batch ended; so is one that shows nothing of a shard
// whose seal lies above, for a second at first: it may be cut off from the others, and know
// of no seal. One that is damaged is left, too, and tried again as long as others, which do
// not answer, may come back.
//
// A replica sends a cursor's records with claims (frontier f, opened k): every record of
// the shard below f that carries the cursor's tags has been sent, and at most k shards
// were opened below f. Both were true when the replica sent them, and stay true: nothing
// is ever ordered below f again. The replica of a sealed shard that has all of it says
// f = everything; its k is the number of shards that it knew then, which proves nothing.
//
// Invariants of a reader:
//
//  1. Its frontier is at most the lowest f of its cursors. A cursor that moves to
//     another replica starts at the f of the one before.
//  2. It passes an LSN only if the process knows every shard that was opened below it
//     (pitfall L2). A claim proves that if f is finite, not below that LSN, and k is at
//     most the number of shards that the process knows. Up to the place of a seal that
//     was received the metalog proves it: events are received in order, so every shard
//     opened below is known. If all cursors' f is everything, nothing else does.
//  3. It has a cursor on each shard that it knows, except those that begin at or above
//     its end, and those of which it was sent everything: sealed at or below its
//     position, or at or below the f of the cursor it had.
//  4. What it shows is contiguous, or it ends with an error: between two batches no
//     record that carries one of its tags is left out.
//  5. A record that came with a checksum is what the client that appended it has
//     encoded, at the LSN that the node was given for it, or is not shown: its cursor
//     goes to another replica (docs/adr/0023).
//
// The process follows the metalog from one sequencer and its cursors follow it from
// others, so the process may know of fewer shards, and fewer seals, than the replicas.
// A reader waits then, and goes on when the process has caught up.
package client
