// Package tagindex finds the groups that carry a tag: tag → groups → places in segments. It holds
// no data and makes no decisions; its content follows from the outcomes of the groups (package
// storage).
//
//	           catalogue (pebble)                 Part, one per segment
//	tag ──▶ closed segments that have it ──▶ ┌──────────────────────────────┐
//	  │                                      │ groups: place, position,     │
//	  └───▶ open segments (in memory) ─────▶ │         records, LSN, effect │
//	                                         │ tag → ordinals of groups     │
//	                                         └──────────────────────────────┘
//
// A Part is in memory while its segment is written. When the segment is closed the Part becomes the
// segment's footer, and its tags are added to the catalogue. After that the Part is read from the
// footer on demand, into a cache that is bounded in bytes. So opening a log of any size reads no
// footer that the catalogue lists.
//
// # The footer
//
//	version 1 (a byte)
//	groups n { gap | size | position gap | records*2+effect | LSN gap }
//	tags n   { shared | rest n bytes | LSN back | entries | raw n bytes }
//
// Numbers are uvarints. The gaps of a group are relative to the end of the group before (0 for the
// first): offsets and positions nearly always have no gap, LSNs have one where records of other
// shards are in between. Tags are in order, each with the number of bytes that it shares with the
// one before. "LSN back" is the distance from the end of the last group back to the end of the last
// record with the tag. raw holds the ordinals of the tag's groups, each as the distance from the
// one before, and is decoded when the tag is first used.
//
// # Invariants
//
//  1. There is one posting per (group, tag), however many records of the group carry it (pitfall
//     P1). Groups without effect are in the table of groups (runs and outcomes outlive the metalog:
//     L6) and in no posting.
//  2. Within one Index, LSNs rise with segment IDs: the segments of a shard are filled in order,
//     and one shard follows the other.
//  3. The catalogue is a cache: Open reads and lists a closed segment that is not listed, and drops
//     one that is listed but does not exist (durably before Open returns, because its name may be
//     reused). The catalogue has no write-ahead log, is flushed from time to time and by Close, and
//     can be deleted.
//  4. The last record of each tag prevents the deletion of a segment, not the last group: a trim
//     point after a tag's last record releases the segment, even if the group contains later
//     records of other tags.
//  5. What cannot be read is never skipped: a reader that reaches a segment with a damaged footer
//     gets an error if the catalogue lists one of its tags for the segment, or does not list the
//     segment.
package tagindex
