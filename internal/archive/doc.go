// Package archive writes records of the log into files, and appends them to a log.
//
// An archive is a directory:
//
//	MANIFEST            what is in it
//	records-00000001    records in the order of the log, the first of which is record 0
//	records-00000002    …
//
// MANIFEST is two lines: a JSON object (type Manifest), and "sha256 " with the hash of the
// first line in hex. A file of records, numbers little endian, checksums CRC-32C:
//
//	header   "TLRECORD" version(4)=1 number(4) first(8) crc(4)    of the 24 bytes before
//	record   length(4) crc(4) payload                             of the payload
//	         payload = tags(uvarint) tags × { length(uvarint) bytes } data
//	end      0(4) crc(4) count(8)                                 of the count
//
// number counts the files from 1, first is the number of the file's first record, count how
// many it has. A payload is never empty: a record has a tag. The manifest has each file's
// length and SHA-256; the archive's id is the hash of those. LSNs are in the manifest only,
// so the same records are the same files, whatever their places in a log.
//
// # Invariants
//
//  1. A directory with a MANIFEST is complete: Export makes it under another name (NAME.partial),
//     syncs everything, and renames it at the end.
//  2. Import reads the whole archive, and checks every byte of it, before it appends the
//     first record.
//  3. Records are imported in their order, each once, however often Import is interrupted. Each
//     group ends with a progress record under the tag import/NAME, which says how many records of
//     the archive were appended; it takes effect together with them. All groups are conditional on
//     the metadata key import/NAME. A later Import changes the key before it looks for the newest
//     progress record, so groups of an earlier Import that are still in flight have no effect.
//
// Atomic groups are not kept, because a reader does not see where one ends.
package archive
