package savepoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/savepoint"
)

// A task of a source begins with the lowest watermark of the partitions that it owns; of a savepoint that does
// not have them, or without a partition, with the stage's.
func TestTime(t *testing.T) {
	s := savepoint.Stage{Groups: 3, Watermark: 10, Watermarks: []int64{30, 10, 20}}
	for _, c := range []struct {
		groups []int
		want   int64
	}{{[]int{0}, 30}, {[]int{0, 2}, 20}, {[]int{2, 0}, 20}, {[]int{0, 1, 2}, 10}, {nil, 10}} {
		require.Equal(t, c.want, s.Time(c.groups), "partitions %v", c.groups)
	}
	s.Groups = 4
	require.EqualValues(t, 10, s.Time([]int{3}), "the source has another number of partitions now")
	s.Watermarks = nil
	require.EqualValues(t, 10, s.Time([]int{0}), "an earlier build has made it")
}
