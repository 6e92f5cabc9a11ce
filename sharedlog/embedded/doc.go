// Package embedded runs the whole log in one process: the sequencer's and the storage core
// connected by function calls, one replica, no network, data on disk.
//
//	Append ──▶ frame, CRC (caller) ──▶ queue ──▶ the loop, one goroutine:
//
//	  admit ─▶ write(2) frames ─▶ [fsync] ─▶ report ─▶ entries ─▶ write(2) metalog ─▶ [fsync]
//	                                                                             │
//	  complete Pendings ◀─ show to readers (hub) ◀─ index ◀─ LSNs and outcomes ◀─ apply
//
//	in the background: fdatasync every interval; closing full segments (footer,
//	catalogue); deleting trimmed segments and metalog files that are not needed
//
// Record data is never copied on this path: the frame is written from the appender's memory, and
// readers and the cache share that memory.
//
// # On disk
//
//	LOCK  VERSION           one process; which layout
//	segments/               storage/segment: the shards' groups
//	meta-00000001.log …     the metalog (metalog.go draws it)
//	catalogue/              storage/tagindex: rebuilt if it is lost
//	BALLAST                 room that Open and trims release on a full disk; without it
//	                        appends are refused
//
// # Invariants
//
//  1. A shard lives as long as the process: every Open seals the shard that was open and opens
//     another (pitfall L1).
//  2. Frames are written to the operating system before their length is reported, and an entry
//     before any effect of it is visible (pitfall L9). So SIGKILL loses nothing that was
//     acknowledged or read.
//  3. A segment's first group is the first after a metalog snapshot: when a segment is full, the
//     log orders everything in it before it starts the next one, and continues the metalog in a
//     new file. A metalog file is needed until its segment is closed.
//  4. After a power cut the order ends at the first cut that its only copy cannot fill; Open logs
//     a warning and starts a new generation. The same finding below the newest sync mark is
//     damage: Open returns ErrCorrupt and changes nothing.
//  5. Nothing waits for a reader.
//  6. A closed segment that is damaged or missing does not prevent Open: its readers get
//     ErrCorrupt with file and offset, all others continue. What the order is computed from (the
//     metalog and the segments that are not closed) must be undamaged, or Open fails and changes
//     nothing.
//  7. At every instant, also after a power cut, the disk has a metalog file with a snapshot
//     (except before the first Open has finished: then the log is empty). For each record after
//     the snapshot of the oldest such file of the newest shard, its segment is on the list of
//     closed segments or exists as a file. Therefore a metalog file is removed only when its
//     segments are on the list and the next file's snapshot is durable. A segment is removed only
//     when no metalog file that orders it is left, or when it is empty and those before it are on
//     the list. A segment on the list is removed only when the trim points are durable, too, and
//     after it was taken off the list. The name of a segment's file is durable before anything is
//     written to it. So a missing segment is always damage, never the result of a power cut: Open
//     fails and names it.
package embedded
