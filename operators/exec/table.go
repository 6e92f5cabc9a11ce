package exec

// StateTable is one table of keyed state, as the task sees it: its changes can be logged and
// replayed, key group by key group.
type StateTable interface {
	// Name is unique in the chain, and does not change when the plan changes before it.
	Name() string
	// Changes appends to out, as one item each, the net changes since the last call (or since
	// Restore): for each key touched its present value, or its deletion. An item is
	//
	//	uvarint table | op (1 = put, 2 = insert, 0 = delete) | uvarint key length | key | uvarint value length | value
	//
	// so that compacting or inspecting a change log requires no serdes; a delete has no value part.
	// The order of items is that of first touch. out may be nil, when changes are not logged: they
	// are dropped.
	//
	// An insert is a put of a key that the log does not hold: what was applied and what was
	// appended before, this call excluded, does not contain it or ends with its deletion. This rule
	// is independent of commits. The calls of one instance each return the difference to the
	// previous one, so a protocol under which a later call counts without an earlier one would lose
	// changes in any case; an instance whose commit is refused ends; and the next instance applies
	// everything that is committed before it appends. So the key is absent from what is committed
	// below the record that has the insert (optest checks it for every commit).
	Changes(table int, out *Output)
	// Apply replays one such item of this table; an insert as a put. The bytes are valid during the
	// call only. It marks nothing as changed. Items come in the order of the change log, but after
	// those of a snapshot, which come in any order and may be of any later time: putting an
	// existing key and deleting a missing one are not errors.
	Apply(group int, op byte, key, value []byte) error
	// Restored is called after the last Apply of some key groups and before anything else, so that
	// the table can build its derived data (timers). Groups that come from another task are restored
	// while the table is used for others.
	Restored(groups []int) error
	// Drop removes a key group (it has moved to another task).
	Drop(group int)
	// Len returns the number of keys, Bytes a rough size in memory, Pending a rough size of what
	// Changes would append now.
	Len() int
	Bytes() int
	Pending() int
}

// The operations of an item; see StateTable.Changes.
const (
	OpDelete byte = 0
	OpPut    byte = 1
	OpInsert byte = 2
)

// KeyChecker is implemented by tables that can check whether a key that another program has written
// is encoded as by this one. A key's bytes determine its key group: if the program now encodes an
// equal key differently, for example because its type has gained a field, items of the key go to
// another key group than its state.
type KeyChecker interface {
	// CheckKey returns an error if the key of an item (StateTable.Changes) is not encoded as this
	// program does it.
	CheckKey(key []byte) error
}
