package runtime

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lead is what the slowest consumer has not passed; the output of an ended instance does not
// count, whether it is in the log or not.
func TestLead(t *testing.T) {
	d := &lead{streams: []streamLead{{stages: []int{1, 2}}, {}}, low: make([][]atomic.Uint64, 3)}
	d.low[1], d.low[2] = make([]atomic.Uint64, 2), make([]atomic.Uint64, 1)
	stand := func(low uint64) {
		for _, st := range d.low {
			for i := range st {
				st[i].Store(low)
			}
		}
	}
	a, b := &task{ahead: make([]outputLead, 2)}, &task{ahead: make([]outputLead, 1)}
	a.ahead[1].stream = 1
	a.measure(d)
	b.measure(d)

	a.ahead[0].produced(10, 1)
	a.ahead[1].produced(1000, 1) // nobody consumes it
	a.ahead[0].produced(20, 2)
	b.ahead[0].produced(100, 1)
	require.EqualValues(t, 130, a.ahead[0].ahead())
	require.Zero(t, a.ahead[1].ahead())

	stand(50) // nothing is known to be in the log
	require.EqualValues(t, 130, a.ahead[0].ahead())
	a.ahead[0].isAt(1, 49)
	require.EqualValues(t, 120, a.ahead[0].ahead())
	a.ahead[0].isAt(2, 50)
	require.EqualValues(t, 120, a.ahead[0].ahead(), "the record at 50 is still to be consumed")
	stand(51)
	d.low[1][1].Store(50)
	require.EqualValues(t, 120, a.ahead[0].ahead(), "one task has not consumed it")
	d.low[1][1].Store(51)
	require.EqualValues(t, 100, a.ahead[0].ahead())
	b.ahead[0].end()
	require.Zero(t, a.ahead[0].ahead())

	for i := range uint64(100) { // the list stays as short as the lead
		a.ahead[0].produced(1, 3+i)
		a.ahead[0].isAt(3+i, 60)
		stand(61)
		require.Zero(t, a.ahead[0].ahead())
	}
	require.LessOrEqual(t, len(a.ahead[0].sent), 4)
	a.ahead[0].produced(7, 200)
	a.ahead[0].end()
	require.Zero(t, b.ahead[0].ahead())
}
