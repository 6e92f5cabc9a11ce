// Package copies defines how the state of key groups goes from the process of the task that has released
// them to that of the task that takes them over: the messages, and what connects the processes
// (docs/adr/0066). A copy saves its receiver from restoring a group from the checkpoint store and the
// change log; nothing depends on one.
//
// The receiver opens a stream to the address in the release (envelope.Release.Served), which names the
// job, and sends Requests (JSON) for key groups, at most two ahead of the answers: one for a whole group, or some
// for sub-groups of it (docs/adr/0068). The answer to each, in their order, is a sequence of frames, of which the last
// one has kind Whole or None, or has the last of the parts asked for:
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
//	  4   Parts  parts, each: uvarint number | uvarint how many items it has | uvarint length | items
//
// A part is a sub-group (exec.SubGroupOf), whose number is below Request.Of, or the head, whose number is Request.Of:
// the items that belong to no key. A receiver asks for the head first. The parts of an answer come in the order of
// the request. Items of a part that is longer than a frame come before it, in frames of kind Some. A process that
// does not divide groups in this way answers with the whole group, as does one of a release that does not
// know Request.Of, and refuses requests for more of it.
//
// # Invariants
//
//  1. A request names the instance and the commit of its release, so the copy of another
//     instance, or of another release, is never the answer.
//  2. A group, or a part of one, is sent once. From the request on the process that sends it does not have it. When
//     the stream ends, it has nothing of a group of which parts were asked for.
//  3. A reader that does not know the version or a kind, or finds another checksum or
//     number of items, drops what it has of the group.
package copies
