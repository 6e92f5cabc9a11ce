// Package fakenet is a network in memory that speaks package transport: hosts with
// names, connections between them, and streams on those, with latency and faults. All
// of its waiting is on channels and timers, so it runs inside a testing/synctest bubble
// on virtual time.
//
//	Network ─ Start("n0") ─▶ Host ─ Dialer() ─▶ Open("n1", "storage/append") ─┐
//	                        Host ─ Server() ◀── handler ◀─ stream ◀─ conn ◀───┘
//
// # What it does as gRPC over TCP does
//
//   - All streams from one process to one address share a connection. When the
//     connection breaks, all of them break; what was on its way is lost, and each end
//     learns of it at its own time.
//   - The messages of one stream arrive in order, each once; those of different
//     streams may overtake each other.
//   - Send returns before the message has arrived. With Settings.Window it waits while
//     so many bytes are on their way or not received yet.
//   - A Raw message is put together when it is received, not when it is sent: who
//     writes to memory that was handed to Send changes the message, here as there.
//   - A process that was killed answers nobody: the operating system resets its
//     connections at once, or, after a power cut, nobody does, and the other end notices
//     by keepalive.
//   - Open does not wait for the other end; it waits for a connection, at most a second,
//     and fails at once for a while after one could not be made.
//
// # Faults
//
// A link is one direction between two hosts. It can be cut (what is on its way arrives
// when it is healed, if the connection lives so long), slow, or have a jitter that
// reorders streams. A connection can be broken, a dial refused, a host killed, or frozen:
// the goroutines of a frozen host stop at its next Send or Recv.
package fakenet
