// Package segment keeps the groups of shards on disk: one frame a group, in
// files that are written once, front to back.
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
//	        (a checksum for readers: package sharedlog/body)
//
// The data comes last and is written from the appender's memory (pwritev), so a
// payload is not copied on its way to the disk. The CRC is taken over hd and
// data first, then over the fixed header behind it, then over the salt of the
// segment, which is not in the frame:
//
//	Frame.Encode     any goroutine     crc(hd, data)               grows with the group
//	Appender.Append  the one writer    crc(…, fixed[4:28], salt)   32 bytes, once the
//	                                                               position is known
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
//	  └───────────────────────────────────────────────────────────── taken off the list
//
// # The list
//
// LIST-1 and LIST-2 (list.go draws them) say which closed segments there must be: for
// each its salt, where its footer is and the footer's CRC, and which part of the shard
// and of the order it holds. So header and trailer can be written anew when they are
// damaged, and a file that is missing or another one's is damage, not a deletion. The
// order of writes, each durable before the next:
//
//	close    frames, footer ▶ trailer ▶ list: closed
//	delete   list: deleted ▶ the file is renamed or removed
//
// A closed segment that is not on the list was closed when the process ended, and is
// put there; a file that the list says was deleted goes when the store is opened.
//
// # Invariants
//
//  1. A frame never spans two files: the Appender goes on to the next one first.
//  2. A file that has a segment's name has that segment's header: both are
//     durable before the name is given.
//  3. A frame of an earlier life of the file, or of another file, does not
//     check: the salt is random and anew for each segment.
//  4. Only the Appender that made a segment appends to it. What a crash left
//     torn is never written behind, only cut off by CloseSegment, so old bytes
//     cannot be taken for new frames (L1, L9).
//  5. What Append has counted was given to write(2): a SIGKILL loses none of it.
//  6. A trailer is there only if all it speaks of is durable: CloseSegment syncs
//     frames and footer before it writes the trailer.
//  7. What is on the list is there or is an error: no reader is told that it was
//     trimmed, and Open removes no file but those that the list says were deleted.
//     The list has room to note that all of it is deleted: a full disk does not keep
//     segments from being deleted.
//  8. After KindFull nothing has changed but bytes behind the last frame, which
//     are overwritten next (G9). After any other failed write, or a failed
//     sync, the Appender refuses everything: what the file holds is unknown.
//
// Where the order must end when frames are missing is not decided here: Scan
// says what it found, how far, and why it stopped.
package segment
