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
// has; from then on it is read from the footer when somebody asks, and a bounded
// number of Parts is kept. So opening a log of any size reads no footer that the
// catalogue knows, and no closed segment at all.
//
// # The footer
//
//	version(1)
//	n { size | records*2+effect | [offset gap] … }      groups, in order
//	first LSN, first position, first offset             of the first group
//	n { tag | m { gap } }                               postings, ascending
//
// Numbers are uvarints. Groups of a segment lie one behind the other in the file
// and in the sublog, so places follow from sizes; LSNs do not (other shards lie
// between), so each group has its LSN's distance from where the one before ended.
//
// # Invariants
//
//  1. One posting per (group, tag), however many records of the group carry it
//     (pitfall P1). Groups without effect are in the table (they are runs and
//     fates, which outlive the metalog: L6) and in no posting.
//  2. Within one Index, LSNs rise with segment IDs: a shard's segments are filled
//     in order, and its shards follow one another.
//  3. The catalogue is a cache: a closed segment that it does not list is read
//     and listed at Open, one that it lists and is not there is dropped. Its
//     writes are atomic a segment and never waited for.
package tagindex
