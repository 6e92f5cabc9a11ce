package exec

import (
	"maps"
	"slices"
)

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
	// Detach removes a key group, which moves to another task, and returns its state for Attach; nil
	// if Attach cannot take it: it is not in memory, or has changed since the last call of Changes.
	// The table keeps no reference to it.
	Detach(group int) Detached
	// Attach adds a key group that the same table of another task has detached, in place of Apply and
	// Restored. The tables of a chain are attached in their order. The table owns the state from then
	// on.
	Attach(group int, state Detached) error
	// Rehome is this table's part of the function Rehome. It drops what the table derives from the entries
	// of both groups; Rehomed, which follows when all tables have re-homed, builds it again.
	Rehome(from, to int, match Match) error
	Rehomed(from, to int)
	// Len returns the number of keys, Keys how many of them are of a key group, as of the last call of
	// Changes; Bytes a rough size in memory, Pending a rough size of what Changes would append now.
	Len() int
	Keys(group int) int
	Bytes() int
	Pending() int
}

// Detached is the state of a key group that a table has detached. Until a table attaches it, any
// goroutine may read it.
type Detached interface {
	// Items calls f for each entry, in no order, with an item as StateTable.Changes makes it, which puts
	// the entry; an error of f ends it. The bytes are valid during the call only.
	Items(table int, f func(item []byte) error) error
}

// GroupState is the state of key groups in memory: by group, what each table has detached.
type GroupState map[int][]Detached

// Detach detaches key groups from all tables of a chain, and returns the state of those that Attach can
// take.
func Detach(tables []StateTable, groups []int) GroupState {
	state := GroupState{}
	for _, g := range groups {
		all := make([]Detached, 0, len(tables))
		for _, table := range tables {
			if s := table.Detach(g); s != nil {
				all = append(all, s)
			}
		}
		if len(all) == len(tables) {
			state[g] = all
		}
	}
	return state
}

// Items calls f for each entry of a key group with an item that puts it, the tables in their order; an
// error of f ends it. The bytes are valid during the call only.
func (s GroupState) Items(group int, f func(item []byte) error) error {
	for i, table := range s[group] {
		if err := table.Items(i, f); err != nil {
			return err
		}
	}
	return nil
}

// Attach adds the key groups of a state to the tables of another instance of the chain.
func Attach(tables []StateTable, state GroupState) error {
	for _, g := range slices.Sorted(maps.Keys(state)) {
		for i, table := range tables {
			if err := table.Attach(g, state[g][i]); err != nil {
				return err
			}
		}
	}
	return nil
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
