package operators

// Home keeps what a table has too much of for memory: encoded entries, on a disk of the
// task's own. It is a cache of the change log, no more durable than memory: a task that
// begins anew begins with an empty one. Used by the task's one goroutine.
//
// Failures are kept by whoever made it, and end the task before its next commit: until
// then a Home may answer what is wrong.
type Home interface {
	// Get appends a key's value to dst; ok is false if there is none.
	Get(group int, key, dst []byte) (value []byte, ok bool)
	// Put, Delete and DeleteRange (of the keys in [from, to)) take effect at the next
	// Flush, in their order.
	Put(group int, key, value []byte)
	Delete(group int, key []byte)
	DeleteRange(group int, from, to []byte)
	Flush()
	// Range calls f for the entries of a key group whose keys are in [from, to), in
	// their order, until it returns false; a nil bound is none. What f gets is valid
	// during the call. f may call Get.
	Range(group int, from, to []byte, f func(key, value []byte) bool)
	// Drop forgets a key group.
	Drop(group int)
	// Limit returns how many bytes the table may keep in memory, as of now.
	Limit() int
}

// typed is a table that says what its entries are.
type typed interface{ describe() string }

// spillable is a table that can live in a Home.
type spillable interface{ spill(h Home) }
