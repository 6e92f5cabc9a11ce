package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLatencyCountsEveryRow(t *testing.T) {
	now := time.Now().UnixMilli()
	l := newLatency()
	l.add([]int64{now - 20_000, now - 20_000, now - 20_000, now - 5_000, now - 20_000, now + 10_000})
	l.add(nil)
	require.EqualValues(t, 6, l.h.TotalCount())
	require.InDelta(t, 20_000_000, l.h.ValueAtQuantile(50), 1_000_000)
	require.InDelta(t, 5_000_000, l.h.ValueAtQuantile(30), 1_000_000)
	require.EqualValues(t, 1, l.h.Min(), "a row that is seen before its time")
}
