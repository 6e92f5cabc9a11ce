// Package client implements sharedlog.Log for a cluster, over connections to its sequencers and
// storage nodes:
//
//	log, err := client.Open(ctx, "10.0.0.1:7000,10.0.0.2:7000", client.WithTLS(cert, key, ca))
//
// Inside:
//
//	Append ──▶ home (a shard's primary) ──▶ answers, or the seal: resolve, next home
//	Reader ◀── merge by LSN ◀── one cursor a shard, in a session a node
//	Get, CompareAndSet, Trim, Tail ──▶ the sequencers' leader
//	shards ◀── follow ── any sequencer
//
// # Appending
//
// A writer has one home shard at a time, chosen by hash among the open shards. Its groups go to the
// home in order, over one stream. When the stream breaks, the client resends the groups without an
// answer, in order; the primary answers a repeated number and does not append the group again. When
// the shard's seal is ordered, the client asks a full replica for the outcome of each number
// without an answer. A number that the replica does not have will never take effect there, so the
// client sends it to the next home, lowest number first (promise 6). It sends nothing to a second
// shard before that. An outcome therefore stays unknown only if the log is closed first.
//
// A shard that will be sealed because another replaces it (it has grown large, or has lost a
// replica) is recognised by a newer open shard on the same primary. A writer leaves such a shard as
// soon as none of its groups there lacks an answer; it holds groups that are appended meanwhile. So
// no append is in flight when the seal comes, and an append waits at most for the answers to those
// before it. Homes are chosen by the primary's address, so that most writers stay at the same node.
//
// # Reading
//
// A reader has a cursor on each shard that may have records at or above its position. A cursor may
// be on any replica. The reader returns the entries below its frontier. A cursor moves to the next
// replica, and continues where its last batch ended, when its replica
//
//   - is silent;
//   - sends nothing of a sealed shard whose seal lies above (after a second at first): it may be
//     cut off from the sequencers and not know of the seal;
//   - is damaged. The reader retries damaged replicas as long as others, which do not answer, may
//     come back.
//
// A replica sends a cursor's records with a claim (frontier f, opened k): it has sent every record
// of the shard below f that carries the cursor's tags, and at most k shards were opened below f. A
// claim stays true, because nothing is ever ordered below f again. A complete replica of a sealed
// shard sends f = everything; its k is the number of shards that it knew then, which proves
// nothing.
//
// Invariants of a reader:
//
//  1. Its frontier is at most the lowest f of its cursors. A cursor that moves to another replica
//     starts at the f of the one before.
//  2. It passes an LSN only if the process knows every shard that was opened below it (pitfall
//     L2). A claim proves that if f is finite and not below that LSN, and k is at most the number
//     of shards that the process knows. Up to the place of a seal that the process has received,
//     the metalog proves it: events arrive in order, so every shard opened below is known. If all
//     cursors' f is everything, only the metalog proves it.
//  3. It has a cursor on each shard that it knows, except shards that begin at or above its end,
//     and shards of which it has received everything: they are sealed at or below its position, or
//     at or below the f of their last cursor.
//  4. What it returns is contiguous, or it ends with an error: between two batches it leaves out
//     no record that carries one of its tags.
//  5. A record that came with a checksum is returned only if it is what the appending client
//     encoded, at the LSN that the node received for it. Otherwise its cursor moves to another
//     replica (docs/adr/0023).
//
// The process follows the metalog from one sequencer and the storage nodes follow it from others,
// so the process may know of fewer shards and seals than the replicas. A reader then waits until
// the process has caught up.
package client
