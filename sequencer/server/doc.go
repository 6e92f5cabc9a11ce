// Package server is a sequencer as a process: the loop, the clock and the sockets
// around sequencer/replica and sequencer/controller.
//
//	peers ────── raft ─────┐                    ┌─▶ peers
//	storage nodes ─ node ──┤ ┌────────────────┐ │
//	clients ── propose, ───┼▶│ loop: Replica, │─┼─▶ history ──▶ follow (nodes, clients)
//	            get        │ │ Decide         │ │
//	clock ── tick ─────────┘ └────────────────┘ └─▶ answers
//
// What comes in waits until the loop comes round, and is one batch then: one write to
// the disk, one message to each peer, one event to each follower. So an idle
// sequencer orders at once, and a busy one orders more at a time. The turn does not wait
// for the disk: syncs run beside it, and their end is one more thing that comes in.
//
// # Invariants
//
//  1. Only who holds the turn touches the Replica: the loop, or, at rest, whoever has
//     brought something, for one turn.
//  2. History is what the Replica has shown, in order: a follower gets each event
//     that concerns it once, or a snapshot in place of those that are gone.
//  3. A sequencer with an empty directory takes part in nothing until all with which it
//     begins have an empty one too, or until the metalog names its store as a member
//     (form.go). No stream is taken from, or by, another store than the metalog names
//     (peer.go).
//  4. A node is heard as long as its stream stands and speaks; when the stream ends
//     the controller is told at once. A leadership begins with no node heard of. It
//     also asks each node at its address: one that speaks and cannot be reached is
//     silent.
package server
