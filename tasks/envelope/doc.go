// Package envelope defines the records of a job: the bytes that tasks, and no other component,
// append to the log. It is pure. The log adds frames and checksums; the operators define the items
// inside a section.
//
// Every record begins with a kind and a version:
//
//	+------+---------+----------------------------
//	| kind | version | body
//	+------+---------+----------------------------
//	 1 byte  1 byte
//
//	kind  name       body      tags it is appended under (package tags)
//	  1   Data       sections  X/<job>/<stream>/<group> of each section
//	  2   Changes    sections  C/<job>/<stage>/<group> of each section
//	  3   Marker     protobuf  X/<job>/<stream>/all of each output, T/…, and C/… of what changed
//	  4   Producers  protobuf  X/<job>/<stream>/all
//	  5   Plan       protobuf  K/<job>
//	  6   (package txn)  protobuf  Z/<job>/<stage>/<task>
//	  7   Checkpoint protobuf  K/<job>/checkpoints, X/<job>/<stream>/all of every stream
//
// A record has version 1 unless it contains something that a reader of version 1 must not skip:
//
//	Data 2     a part of its commit's outputs, which counts where the commit's marker is
//	Changes 2  insertions among its items (Item); written always
//	Changes 3  a part of its commit's changes, which count with the last record of them
//	Marker 2   the record at its position, or a source's batch, is done in part (units)
//	Marker 3   its task has acted on a plan that moves key groups (plan, released, left)
//	Plan 2     it replaces an earlier plan, and moves key groups (number)
//	Plan 3     the grain of a stage has changed (grain)
//	Plan 4     the job has slots, and routing tables (slots, routes)
//
// This build reads all versions.
//
// Data and Changes are the hot path: a header, a directory, the payloads, all integers uvarints (as
// in encoding/binary).
//
//	| stage | task | instance | commit | stream | epoch |           header
//	| directory bytes | group, items, bytes | group, items, bytes | …
//	| payload of section 1 | payload of section 2 | …               to the record's end
//
// The directory comes first so that a consumer skips the key groups that it does not own without
// touching their bytes: a producer packs by what it last knew about ownership, and a stale hint
// must cost bytes only, never correctness.
//
// Marker, Producers, Plan and Checkpoint are the messages of markerpb/marker.proto, which explains
// each field. The encoder and decoder here are written by hand on protowire, because a task reads a
// marker from each producer at each commit and the generated code allocates for every entry; the
// tests compare them with the generated code, byte for byte.
//
// # Invariants
//
//  1. Equal values give equal bytes (a replay compares digests).
//  2. No parser reads beyond a length before checking it, or panics, whatever the
//     bytes; the size of its result is bounded by their length and, where ranges
//     are expanded, by MaxGroups and MaxPlanGroups.
//  3. An unknown kind or version is an error of kind sharedlog.KindVersion, damage
//     one of kind sharedlog.KindCorrupt. The caller adds tag and LSN.
//  4. Inside one version fields are only added: an unknown field of a message is
//     skipped, so a newer writer's record stays readable. What an older reader
//     must not skip gets a new version.
//  5. Sections alias the record; Marker, Producers, Plan and Checkpoint copy what they keep.
package envelope
