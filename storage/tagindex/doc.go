// Package tagindex finds the groups that carry a tag: tag → groups → places in
// segments. It holds no data and decides nothing; what it says follows from the
// fates it is told (package storage).
//
//	           catalogue (pebble)                 Part, one a segment
//	tag ──▶ closed segments that have it ──▶ ┌──────────────────────────────┐
//	  │                                      │ groups: place, position,     │
//	  └───▶ open segments (in memory) ─────▶ │         records, LSN, effect │
//	                                         │ tag → ordinals of groups     │
//	                                         └──────────────────────────────┘
//
// A Part is in memory while its segment is written. When the segment is closed
// the Part becomes the segment's footer, and the catalogue learns which tags it
// has; from then on it is read from the footer when somebody asks, and what is
// kept of them is bounded in bytes. So opening a log of any size reads no footer
// that the catalogue knows, and no closed segment at all.
//
// # The footer
//
//	version 1 (a byte)
//	groups n { gap | size | position gap | records*2+effect | LSN gap }
//	tags n   { shared | rest n bytes | LSN back | entries | raw n bytes }
//
// Numbers are uvarints. The gaps of a group are counted from the end of the one
// before (from 0 at the first): places and positions nearly always have none,
// LSNs have one where other shards lie between. Tags stand in order, each with
// how many bytes it shares with the one before; "LSN back" is from the end of
// the last group to behind the last record that carries the tag; raw holds the
// ordinals of its groups, each as the distance from the one before, and is
// decoded when somebody asks for the tag.
//
// # Invariants
//
//  1. One posting per (group, tag), however many records of the group carry it
//     (pitfall P1). Groups without effect are in the table (they are runs and
//     fates, which outlive the metalog: L6) and in no posting.
//  2. Within one Index, LSNs rise with segment IDs: a shard's segments are filled
//     in order, and its shards follow one another.
//  3. The catalogue is a cache: a closed segment that it does not list is read
//     and listed at Open, one that it lists and the segments' own list does not is
//     dropped (and that is durable before Open returns, because its name may be used
//     again). It has no write-ahead log, is flushed now and then and at Close, and
//     can be deleted.
//  4. What a segment keeps from being deleted is the last record of each tag,
//     not the last group: a trim point behind a tag's last record frees it, also
//     if the group goes on with records of others.
//  5. What cannot be read is never passed: a reader that comes to a segment with a
//     damaged footer is told so, if the catalogue says that it has one of its tags or
//     says nothing of it.
package tagindex
