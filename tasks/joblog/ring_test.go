package joblog

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A ring has all entries until it is full, and then the newest, oldest first.
func TestRing(t *testing.T) {
	var r Ring
	require.Empty(t, r.All())
	add := func(from, to int) {
		for i := from; i < to; i++ {
			r.Add(Entry{Text: fmt.Sprint(i)})
		}
	}
	check := func(from, to int) {
		all := r.All()
		require.Len(t, all, to-from)
		for i := range all {
			require.Equal(t, fmt.Sprint(from+i), all[i].Text)
		}
	}
	add(0, 3)
	check(0, 3)
	all := r.All()
	add(3, kept)
	check(0, kept)
	require.Equal(t, "0", all[0].Text, "what All has returned does not change")
	add(kept, kept+5)
	check(5, kept+5)
	add(kept+5, 2*kept+1)
	check(kept+1, 2*kept+1)
}
