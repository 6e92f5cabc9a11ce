// Package server is a sequencer process: the loop, the clock and the network connections around
// sequencer/replica and sequencer/controller.
//
//	peers ────── raft ─────┐                    ┌─▶ peers
//	storage nodes ─ node ──┤ ┌────────────────┐ │
//	clients ── propose, ───┼▶│ loop: Replica, │─┼─▶ history ──▶ follow (nodes, clients)
//	            get        │ │ Decide         │ │
//	clock ── tick ─────────┘ └────────────────┘ └─▶ answers
//
// Input is queued until the next turn of the loop and is then processed as one batch: one write to
// disk, one message to each peer, one event to each follower. So an idle sequencer orders at once,
// and a busy one orders more at a time. A turn does not wait for the disk: syncs run concurrently,
// and their completion is queued like other input.
//
// # Invariants
//
//  1. Only the holder of turnMu uses the Replica: the loop, or, when the loop is idle, a goroutine
//     that delivers input, for one turn.
//  2. The history contains what the Replica has returned, in order: a follower gets each event that
//     concerns it once, or a snapshot in place of events that are gone.
//  3. A sequencer with an empty directory takes part in nothing until all sequencers that it forms
//     a cluster with have an empty one, too, or until the metalog contains its store as a member
//     (form.go). Streams from and to another store than the metalog contains are refused (peer.go).
//  4. A node counts as connected while its stream is open and delivers messages; when the stream
//     ends the controller gets to know at once. A leadership starts without any connected node. The
//     leader also pings each node at its address: a node that sends messages but cannot be reached
//     counts as silent.
package server
