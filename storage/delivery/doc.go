// Package delivery shows the order of a shard to readers: the newest part from
// memory, the rest by the tag index from the disk. A reader that keeps up is pushed
// to; one that does not is not waited for, and pulls.
//
//	who orders ── Publish(groups, tail) ──▶ Hub ──▶ Cursor ──▶ its goroutine
//	                                         │        ▲
//	                                       cache      │ what lies behind
//	                                                index, segments
//
// # Invariants
//
//  1. Tail moves when all cursors have what lies below it.
//  2. A cursor's queue holds at most its credit, and all queues of a process its
//     Budget, or one group more; nobody waits for a cursor.
//  3. A cursor shows each group once, in order, and never passes a trim point of
//     a tag that it follows without saying so.
package delivery
