package state

import "tailrace.dev/tailrace/operators/internal/panes"

// Closing closes the windows of a PaneTable whose keys have no clocks (package closing). The table tells it of panes
// that the operator has not made, and of those that have gone.
type Closing[K comparable] interface {
	// Restored is called for a pane in memory that comes from the change log, or from another task.
	Restored(group int, key K, end int64)
	// Dropped is called for a key group that has moved away.
	Dropped(group int)
	// Spilled is called, while the table is empty, if its panes are to be on disk. ends counts them.
	Spilled(panes OnDisk[K], ends *panes.Ends)
	// RestoredOnDisk is then called when the panes of some key groups have come, of each of which of says whether it is
	// one.
	RestoredOnDisk(of []bool)
}

// OnDisk is a PaneTable that uses a Home, without the type of its accumulators.
type OnDisk[K comparable] interface {
	// WriteBack writes the panes that end in (from, to] and are only in memory.
	WriteBack(from, to int64)
	// Collect reads more of them into memory, from the first key behind after on, and returns their
	// keys, in order; all up to upTo if there are more.
	Collect(from, to int64, after []byte) (due []DueKey[K], upTo []byte, more bool)
	// Expire deletes them on disk; they have been dropped from memory.
	Expire(from, to int64)
}

// DueKey is a key for which something is due, and its encoding.
type DueKey[K comparable] struct {
	Group int
	Key   K
	Enc   []byte
}
