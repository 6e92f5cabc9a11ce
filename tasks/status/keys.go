package status

import (
	"sync/atomic"

	"tailrace.dev/tailrace/operators/exec"
)

// unknown is in Snapshot.Keys for a key group whose keys were not counted.
const unknown = -1

// keys counts the keys in the state of each key group. The task counts them at the first commit after a reading, and not at each one:
// it looks at all its key groups.
type keys struct {
	read  atomic.Bool // since they were counted
	group []atomic.Int64
}

func (k *keys) begin() {
	for g := range k.group {
		k.group[g].Store(unknown)
	}
}

// Holds records what the task's tables have as of a commit, owned being the key groups that the task owns.
func (s *Status) Holds(tables []exec.StateTable, owned []int) {
	n, bytes := 0, 0
	for _, table := range tables {
		n += table.Len()
		bytes += table.Bytes()
	}
	s.State.Store(int64(n))
	s.StateBytes.Store(int64(bytes))
	if len(s.keys.group) == 0 || !s.keys.read.Swap(false) {
		return
	}
	for _, g := range owned {
		of := 0
		for _, table := range tables {
			of += table.Keys(g)
		}
		s.keys.group[g].Store(int64(of))
	}
}

// take reads the counts, and asks for new ones.
func (k *keys) take() []int64 {
	k.read.Store(true)
	var all []int64
	for g := range k.group {
		all = append(all, k.group[g].Load())
	}
	return all
}
