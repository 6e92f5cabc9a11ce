package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
)

// counted is a table with some keys a key group, which it counts when it is asked.
type counted struct {
	exec.StateTable
	keys  []int
	asked int
}

func (c *counted) Len() (n int) {
	for _, k := range c.keys {
		n += k
	}
	return n
}

func (c *counted) Bytes() int { return 10 * c.Len() }

func (c *counted) Keys(group int) int {
	c.asked++
	return c.keys[group]
}

// The keys of the task's key groups are counted at the first commit after a reading, and not at others. What an instance before has
// counted is forgotten.
func TestHolds(t *testing.T) {
	s := New(time.Now, 4)
	a, b := &counted{keys: []int{5, 0, 7, 1}}, &counted{keys: []int{1, 2, 3, 4}}
	tables := []exec.StateTable{a, b}
	s.Holds(tables, []int{0, 2})
	require.Zero(t, a.asked, "nobody has read")
	r := s.Read("sums", 0)
	require.EqualValues(t, 23, r.StateKeys)
	require.EqualValues(t, 230, r.StateBytes)
	require.Equal(t, []int64{-1, -1, -1, -1}, r.Keys)
	s.Holds(tables, []int{0, 2})
	a.keys[0] = 50
	s.Holds(tables, []int{0, 2})
	require.Equal(t, 2, a.asked)
	require.Equal(t, []int64{6, -1, 10, -1}, s.Read("sums", 0).Keys)
	s.Holds(tables, []int{0, 2})
	require.Equal(t, []int64{51, -1, 10, -1}, s.Read("sums", 0).Keys)
	s.Began()
	require.Equal(t, []int64{-1, -1, -1, -1}, s.Read("sums", 0).Keys)
	require.Nil(t, New(time.Now, 0).Read("source", 0).Keys)
}
