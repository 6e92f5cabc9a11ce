package position

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
)

// Instances process records item by item, in calls of any size, and end anywhere. The next one
// begins at the record where the position is, and skips what is done of it: each item is processed
// once, and the position counts the items of all instances.
func TestPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(rapid.IntRange(0, 12), 1, 10).Draw(t, "records") // items of each
		processed := make([]int, len(records))
		at, done := 0, 0 // committed
		for at < len(records) {
			p := Position{SkipAt: sharedlog.LSN(at + 1), Skip: done}
			require.Equal(t, done > 0, !p.Behind())
			crash := rapid.IntRange(1, 60).Draw(t, "units until it ends")
			for i := at; i < len(records) && crash > 0; i++ {
				require.NoError(t, p.Begin(sharedlog.LSN(i+1)))
				require.Equal(t, p.At, p.Record)
				for item := p.Skipped(records[i]); item < records[i] && crash > 0; {
					n := min(rapid.IntRange(1, 5).Draw(t, "items of a call"), records[i]-item, crash)
					item, crash = item+n, crash-n
					processed[i] += n
					p.Units += uint64(n)
					require.EqualValues(t, item, p.Done())
				}
				if int(p.Done()) == records[i] {
					p.Units = 0
					at, done = i+1, 0
				} else {
					at, done = i, int(p.Done())
				}
				crash--
			}
		}
		require.Equal(t, records, processed)
	})
}

// A record of several sections: what earlier instances have done may end in the middle of one, and
// the sections before it are skipped whole.
func TestSkippedSections(t *testing.T) {
	p := Position{SkipAt: 4, Skip: 7}
	require.NoError(t, p.Begin(4))
	require.Equal(t, []int{3, 4, 0}, []int{p.Skipped(3), p.Skipped(5), p.Skipped(2)})
	require.EqualValues(t, 7, p.Done())
	require.False(t, p.Behind())
}

// The record that an earlier instance has started must come again: if it is missing, what is done of
// it would be skipped of another one.
func TestPositionIsMissing(t *testing.T) {
	p := Position{SkipAt: 4, Skip: 7}
	require.NoError(t, p.Begin(3)) // of another task, or one that is not to be processed
	err := p.Begin(5)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, "the record at LSN 4, of which 7 items are done, is missing from the log")
	require.NoError(t, p.Begin(4))
	require.Equal(t, 7, p.Skipped(9))
	require.NoError(t, p.Begin(5))
}
