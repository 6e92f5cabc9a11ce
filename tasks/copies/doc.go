// Package copies defines how the state of key groups goes from the process of the task that has released
// them to that of the task that takes them over: the messages, and what connects the processes
// (docs/adr/0066). A copy saves its receiver from restoring a group from the checkpoint store and the
// change log; nothing depends on one.
//
// The receiver opens a stream to the address in the release (envelope.Release.Served), which names the
// job, and sends a Request (JSON) for each key group, at most two ahead of the answers. The answer to each,
// in their order, is a sequence of frames, of which the last one has kind Whole or None:
//
//	| version | kind | checksum | body
//	  1 byte   1 byte  4 bytes
//
//	version   1
//	checksum  CRC-32C of version, kind and body, little-endian
//	kind  name   body
//	  1   Some   items of the group, as in a change record (exec.StateTable.Changes), which put its
//	             entries, table by table
//	  2   Whole  uvarint: how many items the group has
//	  3   None   nothing: the process does not have the group, or not any more
//
// # Invariants
//
//  1. A request names the instance and the commit of its release, so the copy of another
//     instance, or of another release, is never the answer.
//  2. A group is sent once. From the request on the process that sends it does not have it.
//  3. A reader that does not know the version or a kind, or finds another checksum or
//     number of items, drops what it has of the group.
package copies
