// Package embedded is the whole log in one process: the sequencer's and the
// storage core wired by calls, one replica, no network, data on disk.
//
//	Append ──▶ frame, CRC (caller) ──▶ queue ──▶ the loop, one goroutine:
//
//	  admit ─▶ write(2) frames ─▶ [fsync] ─▶ report ─▶ entries ─▶ write(2) metalog ─▶ [fsync]
//	                                                                             │
//	  complete Pendings ◀─ show to readers (hub) ◀─ index ◀─ LSNs and fates ◀─ apply
//
//	in the background: fdatasync every interval; closing full segments (footer,
//	catalogue); deleting what is trimmed and metalog files nobody needs
//
// Record data is never copied on this way: the frame is written from the
// appender's memory, which is also what readers are shown and what the cache
// keeps.
//
// # On disk
//
//	LOCK  VERSION           one process; which layout
//	segments/               storage/segment: the shards' groups
//	meta-00000001.log …     the metalog (metalog.go draws it)
//	catalogue/              storage/tagindex: made again if it is lost
//	BALLAST                 room that Open and trims give up on a full disk; without it
//	                        appends are refused
//
// # Invariants
//
//  1. A shard lives as long as the process: every Open seals the shard that was
//     open and opens another (pitfall L1).
//  2. Frames are with the operating system before their length is reported, an
//     entry is before any effect of it is shown (pitfall L9). So SIGKILL loses
//     nothing that was acknowledged or seen.
//  3. A segment's first group is the first behind a metalog snapshot: when a
//     segment is full, everything in it is ordered before the next one is begun,
//     and the metalog goes on in a new file. A metalog file is needed until its
//     segment is closed.
//  4. After a power cut the order ends at the first cut that its only copy cannot
//     fill, with a warning and a new generation; below the newest sync mark the
//     same finding is damage (ErrCorrupt, and nothing has been changed).
//  5. Nothing waits for a reader.
//  6. A closed segment that is damaged or missing keeps nobody from opening the log:
//     its readers get ErrCorrupt that names file and offset, and all others go on. What
//     the order follows from (the metalog, the segments that are not closed) must be
//     whole, or Open fails and changes nothing.
//  7. At every instant, also after a power cut, the disk has a metalog file with a snapshot
//     (before the first Open has come to its end: an empty log), and for each record behind
//     the snapshot of the oldest such file of the newest shard its segment: on the list of
//     closed segments, or as a file. So a metalog file is removed when its segments are
//     on the list and the next file's snapshot is durable; a segment when no metalog file
//     that orders it is left, or nothing is in it and those before it are on the list; and
//     one that is on the list when also the trim points are durable, and the list says so
//     before its file goes. A segment's file has its name durably before anything is
//     written into it. So a segment that is missing here is damage, never a power cut:
//     Open fails and names it.
package embedded
