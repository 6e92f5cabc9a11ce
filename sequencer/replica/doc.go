// Package replica implements one of the sequencers that replicate the metalog: raft, its disk and
// the ordering core, as one struct that is stepped. It has no goroutine, clock or network: its
// inputs are ticks, messages and requests, its outputs messages and effects. So a whole cluster can
// run in a test or in the simulator, and be replayed from a seed. Package sequencer/server has the
// loop and the network connections.
//
//	reports ─▶ Core (leader only) ─▶ entries ─▶ raft ─▶ messages to peers
//	proposals ─▶ │                              │  └──▶ WAL ─▶ Job (sync) ─▶ Done ─▶ acknowledgements, votes
//	             └──────────── Advance ◀────── committed ──▶ State (followers)
//	                              │
//	                              ▼
//	                    effects, outcomes of proposals
//
// With Options.Async, Process writes and does not wait for the disk: a sync is a Job that may run
// on any goroutine, concurrently with further steps. Messages that depend on it are sent after its
// Done (docs/adr/0030).
//
// # On disk
//
//	wal-00000001 …   the newest file is in use; a new one starts with a snapshot of what is
//	                 applied and the entries after it, and gets its name when that is
//	                 durable. Older files stay for View, up to Options.HistoryBytes; on a
//	                 full disk they are removed first (docs/adr/0031)
//	file   = record …
//	record = crc 4 | magic 4 | length 4 | synced 8 | kind 1 | payload     (LE, CRC32C of all after it)
//	kind   = 1 snapshot (raftpb.Snapshot) | 2 hard state (raftpb.HardState) | 3 entry (raftpb.Entry)
//
// synced is the offset up to which the file was durable when the record was written: damage below
// the synced of a later record is ErrCorrupt, damage at the end is a torn write and is cut off.
//
// The data of a raft entry, or the context of one that changes raft's configuration, is a batch of
// metalog entries: { length entry } …; the first entry of a new leader has an empty batch. A
// snapshot's data is that of sequencer.State.
//
// # Invariants
//
//  1. What a message promises (a vote, an acknowledgement) is durable before Process returns the
//     message; raft marks the messages for which that holds. Every replica, also the leader,
//     applies only what is durable on its own disk. Under Lazy, durable means written to the
//     operating system; votes and terms are synced to disk all the same. A replica after a power
//     failure then counts as lost; followers of the metalog that have seen more than the sequencers
//     still know report that (package server).
//  2. A leader has a Core only after everything before its term, and everything that it proposed
//     with an earlier Core, has been applied. So all entries that are committed while it has a Core
//     are the Core's own, in order, and Advance applies them.
//  3. A Core ends with the leadership; reports are cumulative and are sent again. A proposal that
//     was passed to raft then has an unknown outcome, ErrUnknown; one that was not is ErrNotLeader.
//  4. Every replica returns effects in the order of their indices, each once in the life of a
//     Replica, starting after the snapshot that it was opened with. A snapshot that is received in
//     place of entries is returned, too.
//  5. The members of raft and those of the metalog change in one entry: the metalog batch of the
//     change is the context of raft's. There is one change at a time, and its outcome is returned
//     when a majority of the new members knows that it is committed (members.go, docs/adr/0019).
//  6. After an error of Process the Replica must not be used any more: the content of its disk is
//     unknown.
package replica
