// Package body is the encoding of a group: the same bytes on the wire, on a backup's
// disk and on its primary's, made once, by who appends.
//
//	body = head data
//	head = flags writer number key value { sum(4) } { tags n{tag} length }     one a record
//	data = the records' data, one behind the other
//
// Numbers are uvarints, strings are their length and bytes; flags is a byte:
//
//	1   the group opens its writer's session on a shard
//	2   the sums are there; without it there are none (feature level 1)
//
// Beside a body always stand its CRC32C, the length of its head and the number of its
// records: on disk in a frame's header (storage/segment), on the wire in Prefix.
//
// A record's sum is the CRC32C, in little-endian, of its row in the head and its data:
//
//	tags n{tag} length data
//
// The client that appends computes it, and readers verify it: storage nodes pass it on
// and never compute it (docs/adr/0023).
package body
