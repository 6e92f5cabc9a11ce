// Package delivery delivers the ordered groups of a shard to readers: the newest ones from memory,
// the rest from disk with the tag index. Groups are pushed to a reader that keeps up. The package
// does not wait for a reader that does not; that reader pulls.
//
//	order ──── Publish(groups, tail) ──▶ Hub ──▶ Cursor ──▶ its goroutine
//	                                      │        ▲
//	                                    cache      │ older groups
//	                                             index, segments
//
// # Invariants
//
//  1. Tail moves after all cursors have received what lies below it.
//  2. A cursor's queue holds at most its credit, and all queues of a process their Budget, or one
//     group more. No goroutine waits for a cursor.
//  3. A cursor delivers each group once, in order, and returns ErrTrimmed instead of passing a trim
//     point of a tag that it follows.
package delivery
