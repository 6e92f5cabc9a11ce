// Package fakenet is a network in memory that implements package transport: hosts with names,
// connections between them, and streams on those, with latency and faults. All of its waiting is on
// channels and timers, so it runs inside a testing/synctest bubble on virtual time.
//
//	Network ─ Start("n0") ─▶ Host ─ Dialer() ─▶ Open("n1", "storage/append") ─┐
//	                        Host ─ Server() ◀── handler ◀─ stream ◀─ conn ◀───┘
//
// # What it has in common with gRPC over TCP
//
//   - All streams from one process to one address share a connection. When the connection breaks,
//     all of them break; messages in flight are lost, and each end learns of the break at its own
//     time.
//   - The messages of one stream arrive in order, each once; those of different streams may
//     overtake each other.
//   - Send returns before the message has arrived. With Settings.Window it waits while that many
//     bytes are in flight or not received yet.
//   - The parts of a Raw message are joined when it is received, not when it is sent: writing to
//     memory that was passed to Send changes the message, as with gRPC.
//   - A killed process does not answer: the operating system resets its connections at once, or,
//     after a power cut, the other end notices by keepalive.
//   - Open does not wait for the other end; it waits for a connection, at most a second, and fails
//     at once for a while after a connection could not be made.
//
// # Faults
//
// A link is one direction between two hosts. It can be cut (messages in flight arrive when it is
// healed, if the connection lives that long), slow, or have a jitter that reorders streams. A
// connection can be broken, a dial refused, a host killed, or frozen: the goroutines of a frozen
// host stop at their next Send or Recv.
package fakenet
