// Package segment stores the groups of shards on disk: one frame per group, in files that are
// written once, from front to back.
//
// # A frame
//
// All integers are little-endian. One group is one frame under one CRC32C:
//
//	      0       4       8       12      16      20              28
//	      +-------+-------+-------+-------+-------+---------------+----------+------+------+
//	frame | crc   | magic | hdlen | dalen | recs  | position      | hd       | data1| data2| …
//	      +-------+-------+-------+-------+-------+---------------+----------+------+------+
//	       fixed header, 28 bytes                                  hdlen      dalen bytes
//	hd    = flags | writer | number | condition key | condition value | [sum 4 …] | record …
//	record = tags | tag … | length of its data    (strings: length, bytes; numbers: uvarint)
//	flags = 1: the group opens its writer's session, 2: there is a sum for each record
//	        (a checksum for readers: package sharedlog/wire)
//
// The data comes last and is written from the appender's memory (pwritev), so a payload is not
// copied on its way to the disk. The CRC covers hd and data first, then the fixed header after the
// CRC, then the segment's salt, which is not in the frame:
//
//	Frame.Encode     any goroutine      crc(hd, data)               grows with the group
//	Appender.Append  writing goroutine  crc(…, fixed[4:28], salt)   32 bytes, once the
//	                                                                position is known
//
// # A segment's file
//
//	0          40                         used              size
//	+----------+--------+--------+--------+--------+---------+
//	| header   | frame  | frame  | …      | footer | trailer |   closed: cut to size
//	| salt     |        |        |        | opaque | used, … |
//	+----------+--------+--------+--------+--------+---------+
//	header  = magic 8 | version 4 | shard 4 | number 4 | 0 4 | salt 8 | 0 4 | crc 4
//	trailer = magic 8 | salt 8 | used 4 | footer length 4 | footer crc 4 | 0 8 | crc 4
//
// The life of a segment:
//
//	spare ──prepare──▶ open ──full──▶ (its groups get ordered) ──CloseSegment──▶ closed
//	  ▲   zeros, header,   Append                                footer, trailer,   │
//	  │   sync, rename                                           listed           Delete:
//	  └───────────────────────────────────────────────────────── removed from the list
//
// # The list
//
// LIST-1 and LIST-2 (drawn in list.go) list the closed segments that must exist. For each segment
// they contain its salt, the place and CRC of its footer, and the part of the shard and of the
// order that it holds. With the list a damaged header or trailer can be rewritten, and a missing
// file, or the file of another segment under its name, is damage and not a deletion. The order of
// writes, each durable before the next:
//
//	close    frames, footer ▶ trailer ▶ list: closed
//	delete   list: deleted ▶ the file is renamed or removed
//
// A closed segment that is not on the list was being closed when the process ended; Open lists it.
// Open removes files of segments that are deleted according to the list.
//
// # Invariants
//
//  1. A frame never spans two files: the Appender changes to the next file first.
//  2. A file with the name of a segment has that segment's header: both are durable before the file
//     is renamed.
//  3. A frame from an earlier use of the file, or of another file, fails its checksum: each segment
//     has a new random salt.
//  4. Only the Appender that created a segment appends to it. Nothing is written after a frame that
//     a crash has torn; CloseSegment cuts it off, so old bytes cannot be taken for new frames (L1,
//     L9).
//  5. What Append has counted was passed to write(2): a SIGKILL loses none of it.
//  6. A trailer exists only if everything that it refers to is durable: CloseSegment syncs frames
//     and footer before it writes the trailer.
//  7. What is on the list exists or is an error: no reader is told that it was trimmed, and Open
//     removes only files that are deleted according to the list. The list has space to delete every
//     segment, so a full disk does not prevent deletions.
//  8. After KindFull nothing has changed except bytes after the last frame, which the next Append
//     overwrites (G9). After any other failed write, or a failed sync, the Appender refuses all
//     further operations: the content of the file is unknown.
//
// This package does not decide whether frames are missing at the end: Scan reports what it found,
// how far it got, and why it stopped.
package segment
