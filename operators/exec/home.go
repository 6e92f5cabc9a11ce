package exec

// Home stores the part of a table that does not fit in memory: encoded entries, on a disk of the
// task's own. It is a cache of the change log, no more durable than memory: a new instance starts
// with an empty one. Only the task's goroutine uses it.
//
// The implementation keeps its first error, which ends the task before its next commit: until then
// a Home may return wrong results.
type Home interface {
	// Get appends a key's value to dst; ok is false if there is none.
	Get(group int, key, dst []byte) (value []byte, ok bool)
	// Put, Delete and DeleteRange (of the keys in [from, to)) take effect at the next
	// Flush, in their order.
	Put(group int, key, value []byte)
	Delete(group int, key []byte)
	DeleteRange(group int, from, to []byte)
	Flush()
	// Range calls f for the entries of a key group whose keys are in [from, to), in their order,
	// until it returns false; a nil bound means no bound. key and value are valid during the call.
	// f may call Get.
	Range(group int, from, to []byte, f func(key, value []byte) bool)
	// Drop removes a key group.
	Drop(group int)
	// Limit returns how many bytes the table may keep in memory at present.
	Limit() int
}
