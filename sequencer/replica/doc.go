// Package replica is one of the sequencers that replicate the metalog: raft, its
// disk and the ordering core, as one struct that is stepped. It has no goroutine, no
// clock and no network: ticks, messages and requests go in, messages and effects
// come out, so that a whole cluster runs in a test, or in the simulator, replayed
// from a seed. Package sequencer/server is the loop and the sockets around it.
//
//	reports ─▶ Core (leader only) ─▶ entries ─▶ raft ─▶ messages to peers
//	proposals ─▶ │                              │  └──▶ WAL ─▶ Job (sync) ─▶ Done ─▶ acknowledgements, votes
//	             └──────────── Advance ◀────── committed ──▶ State (followers)
//	                              │
//	                              ▼
//	                    effects, outcomes of proposals
//
// Process writes, and does not wait for the disk (Options.Async): the sync is a Job that
// runs anywhere, beside further turns, and what depends on it leaves behind its Done
// (docs/adr/0030).
//
// # On disk
//
//	wal-00000001 …   the newest file is in use; a new one begins with a snapshot of what is
//	                 applied, and the entries behind it, and gets its name when that is
//	                 durable. Older files stay for View, up to Options.HistoryBytes; a full
//	                 disk takes them first (docs/adr/0031)
//	file   = record …
//	record = crc 4 | magic 4 | length 4 | synced 8 | kind 1 | payload     (LE, CRC32C of all behind it)
//	kind   = 1 snapshot (raftpb.Snapshot) | 2 hard state (raftpb.HardState) | 3 entry (raftpb.Entry)
//
// synced is up to where the file was durable when the record was written: damage
// below a synced that a later record names is ErrCorrupt, damage at the end is a
// torn write and cut off.
//
// The data of a raft entry, or the context of one that changes raft's configuration, is a
// batch of metalog entries: { length entry } …; none is what a new leader commits first. A snapshot's data is sequencer.State's.
//
// # Invariants
//
//  1. What a message promises (a vote, an acknowledgement) is durable before Process
//     returns the message; raft names the messages for which that holds. Nothing is
//     applied, by a leader either, that is not durable here.
//     Under Lazy durable means: with the operating system; votes and terms are on disk
//     all the same. A replica that a power cut has hit then counts as lost; followers
//     of the metalog that have seen more than the sequencers still know say so (package
//     server).
//  2. A leader has a Core only from the moment at which everything before its term,
//     and everything it proposed with an earlier Core, is applied. So all that is
//     committed while it has one is the Core's own, in order, and Advance applies it.
//  3. A Core dies with the leadership; reports are cumulative and come again. A
//     proposal that was handed to raft then has an unknown outcome: ErrUnknown; one
//     that was not is ErrNotLeader.
//  4. Effects come out of every replica in the order of their indices, each once in
//     the life of a Replica, beginning behind the snapshot it started from; a
//     snapshot that was received instead of entries comes out as one, too.
//  5. The members of raft and those of the metalog change in one entry: a change's
//     metalog batch is the context of raft's. There is one at a time, and its outcome is
//     told when a majority of the new members knows that it is committed (members.go,
//     docs/adr/0019).
//  6. A Process that fails leaves a Replica that must not be used any more: what its
//     disk holds is unknown.
package replica
