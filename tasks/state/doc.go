// Package state stores state that is larger than memory. Without it, a task's tables are in memory
// whole.
//
//	change log, snapshots   the state itself (durable)
//	Pebble                  the part of it that does not fit into memory (scratch, on disk)
//	a table's index         the part of it that was used recently
//
// The store is not a copy of record: it begins empty, is filled from snapshots and change log like
// memory, and is removed at the end. So it has no write-ahead log and is never synced.
package state
