package exec

import (
	"errors"
	"fmt"
)

// Match says which keys of a stream are meant: key holds a key's bytes, hash is HashKey of them.
// The bytes are valid during the call only.
type Match func(hash uint64, key []byte) bool

// ErrStays is in the error of Rehome for a table that cannot re-home a part of a key group.
var ErrStays = errors.New("state stays in its key group")

// Rehome moves the state of the keys that match holds for from one key group of a task into another one, in
// which these keys have no state; of what keys of a group share, the other group gets a copy. Both groups are
// whole. It is called between Flush and the first Changes of a commit that follows only when everything due
// by the present event time has fired; a key is re-homed at most once in a commit. That commit's change logs
// have the keys' deletion under from and their insertion under to.
//
// The tables are those of a chain whose OfStream is true.
// Chain.Stand follows. After an error the chain is broken, as after one of its own: the commit must not happen.
func Rehome(tables []StateTable, from, to int, match Match) error {
	if from == to {
		return fmt.Errorf("key group %d is re-homed to itself", from)
	}
	for _, table := range tables {
		if err := table.Rehome(from, to, match); err != nil {
			return fmt.Errorf("re-homing from key group %d to %d: %w", from, to, err)
		}
	}
	for _, table := range tables {
		table.Rehomed(from, to)
	}
	return nil
}
