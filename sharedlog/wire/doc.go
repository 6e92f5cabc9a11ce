// Package wire encodes and decodes what clients and storage nodes send each other beside the
// protobuf messages of package logpb: groups and records. Each format has one encoder and one
// decoder, both here.
//
//	stream             | from → to                | messages
//	storage/append     | client → primary         | Submission
//	                   | primary → client         | Answer
//	storage/replicate  | primary → backup         | ReplicateParts
//	                   | backup → primary         | EncodeLength
//	storage/session    | storage node → client    | SessionMessage
//	storage/fetch      | replica → replica        | Fetched
//	storage/digest     | replica → replica        | logpb, with Digest
//
// A message of any of them may be cut or damaged: decoders return an error then, and never panic.
// What they return aliases the message.
//
// All of them but digests contain groups or records of groups. The appending client encodes a group
// once; the same bytes travel on the wire and are stored by the primary and the backups:
//
//	body = head data
//	head = flags writer number key value { sum(4) } { tags n{tag} length }     one a record
//	data = the records' data, concatenated
//
// Numbers are uvarints, strings are their length and bytes; flags is a byte:
//
//	1   the group opens its writer's session on a shard
//	2   the sums are present; without it there are none (feature level 1)
//
// A body is always accompanied by its CRC32C, the length of its head and the number of its records:
// on disk in a frame's header (storage/segment), on the wire in a prefix (PrefixSize).
//
// A record's sum is the CRC32C, in little-endian, of its row in the head and its data:
//
//	tags n{tag} length data
//
// The appending client computes it and readers verify it. Storage nodes pass it on and never
// compute it (docs/adr/0023).
package wire
