package operators_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
)

// The items that a FuncSink's function and a Collector keep do not change, although their memory is
// reused: optest overwrites it.
func TestSinksKeepItems(t *testing.T) {
	var items []optest.Timed[hit]
	var want []hit
	for i := range int64(300) {
		items = append(items, optest.At(i, hit{fmt.Sprint("key ", i), i}))
		want = append(want, hit{fmt.Sprint("key ", i), i})
	}
	var kept []hit
	borrowed := 0
	collector := optest.Collect[hit](nil)
	job := operators.NewJob("keep")
	src := operators.FromSource(job, "src", optest.Items(0, items), hitSerde)
	operators.ToSink(src, "func", operators.FuncSink(func(b *operators.Batch[hit]) error {
		kept = append(kept, b.Items...)
		return nil
	}))
	operators.ToSink(src, "collect", collector)
	operators.ToSink(src, "borrowed", operators.BorrowedFuncSink(func(b *operators.Batch[hit]) error {
		borrowed += b.Len()
		return nil
	}))
	plan, err := job.Plan()
	require.NoError(t, err)
	_, err = optest.Run(plan, optest.Options{})
	require.NoError(t, err)
	require.Equal(t, want, kept)
	require.Equal(t, want, collector.Rows)
	require.Equal(t, len(want), borrowed)
}
