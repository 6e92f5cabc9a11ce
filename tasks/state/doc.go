// Package state has the homes of state that is larger than memory. Without one a task's
// tables are in memory whole.
//
//	change log, snapshots   what state is (durable)
//	Pebble                  what of it does not fit into memory (scratch, on disk)
//	a table's index         what of it was used lately
//
// A home is no copy of record: it begins empty, is filled from snapshots and change log
// like memory, and is removed at the end. So it has no write-ahead log and is never
// synced.
package state
