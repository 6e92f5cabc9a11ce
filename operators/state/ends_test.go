package state

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/ending"
	"tailrace.dev/tailrace/operators/serde"
)

// A value that ends is, in the change log and in a home, its end, how long before it its timer is, and
// the value.
func TestEndingBytes(t *testing.T) {
	now := int64(900)
	x := NewExpiring("v", 1, serde.Int64, serde.String, 90, func() int64 { return now })
	key := int64(7)
	_, v, created := x.Entry(0, &key)
	require.True(t, created)
	*v, now = "ab", 910
	require.Equal(t, "ab", *x.Update(0, &key))
	e := x.m.find(0, &key)
	bytes := x.m.appendValue(nil, e)
	require.Equal(t, []byte{0xd0, 0x0f, 20, 2, 'a', 'b'}, bytes) // 1000, 10, two bytes

	y := NewExpiring("v", 1, serde.Int64, serde.String, 90, func() int64 { return now })
	key = 6 // the number of its entry is another one in the index
	y.Entry(0, &key)
	require.NoError(t, y.m.Apply(0, exec.OpPut, serde.Int64.Append(nil, &e.Key), bytes))
	key = 7
	require.Equal(t, "ab", *y.Get(0, &key))
	require.Equal(t, ending.Ending{Until: 1000, Armed: 990}, *y.m.ends.Of(0, y.m.find(0, &key).At))
	require.ErrorIs(t, y.m.Apply(0, exec.OpPut, serde.Int64.Append(nil, &key), bytes[:2]), serde.ErrMalformed)
	require.Equal(t, "map int64 → ending string", y.m.Describe())
}
