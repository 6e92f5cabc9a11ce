package lead

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lead is what the slowest consumer has not passed; the output of an ended instance does not
// count, whether it is in the log or not.
func TestLead(t *testing.T) {
	d := &Lead{streams: []stream{{stages: []int{1, 2}}, {}}, low: make([][]atomic.Uint64, 3)}
	d.low[1], d.low[2] = make([]atomic.Uint64, 2), make([]atomic.Uint64, 1)
	stand := func(low uint64) {
		for _, st := range d.low {
			for i := range st {
				st[i].Store(low)
			}
		}
	}
	a, b := []Output{Of(d, 0), Of(d, 1)}, []Output{Of(d, 0)}

	a[0].Produced(10, 1)
	a[1].Produced(1000, 1) // it has no consumer
	a[0].Produced(20, 2)
	b[0].Produced(100, 1)
	require.EqualValues(t, 130, a[0].Ahead())
	require.Zero(t, a[1].Ahead())

	stand(50) // nothing is known to be in the log
	require.EqualValues(t, 130, a[0].Ahead())
	a[0].Landed(1, 49)
	require.EqualValues(t, 120, a[0].Ahead())
	a[0].Landed(2, 50)
	require.EqualValues(t, 120, a[0].Ahead(), "the record at 50 is still to be consumed")
	stand(51)
	d.low[1][1].Store(50)
	require.EqualValues(t, 120, a[0].Ahead(), "one task has not consumed it")
	d.low[1][1].Store(51)
	require.EqualValues(t, 100, a[0].Ahead())
	b[0].End()
	require.Zero(t, a[0].Ahead())

	for i := range uint64(100) { // the list stays as short as the lead
		a[0].Produced(1, 3+i)
		a[0].Landed(3+i, 60)
		stand(61)
		require.Zero(t, a[0].Ahead())
	}
	require.LessOrEqual(t, len(a[0].sent), 4)
	a[0].Produced(7, 200)
	a[0].End()
	require.Zero(t, b[0].Ahead())
}
