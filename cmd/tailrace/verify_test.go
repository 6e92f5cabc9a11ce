package main

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/body"
)

// Replicas are compared where both show something; what one has deleted because it was
// trimmed is no difference, what it cannot show is damage.
func TestCompareReplicas(t *testing.T) {
	group := func(position uint64, lsn sharedlog.LSN, data string) body.Fetched {
		f := body.Fetched{Kind: body.FetchedGroup, From: position, First: lsn}
		f.Wire.Encode(&sharedlog.Group{Writer: "w", Number: 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: []byte(data)}}}, false)
		return f
	}
	trimmed := func(from, to uint64) body.Fetched {
		return body.Fetched{Kind: body.FetchedTrimmed, From: from, To: to}
	}
	replica := func(addr string, end error, rows ...body.Fetched) *fetched {
		f := &fetched{addr: addr, close: func() {}}
		f.next = func() ([]byte, error) {
			if len(rows) == 0 {
				return nil, end
			}
			b := body.AppendFetched(nil, &rows[0])
			rows = rows[1:]
			return b, nil
		}
		return f
	}
	all := []body.Fetched{group(0, 1, "a"), group(1, 2, "b"), group(2, 7, "c")}
	for i, c := range []struct {
		other *fetched
		ok    bool
		want  string
	}{
		{replica("b", io.EOF, all...), true, "equal\ta\tb"},
		{replica("b", io.EOF, append([]body.Fetched{{Kind: body.FetchedWriters, Table: []byte("t")}}, all...)...), true, "equal\ta\tb"},
		{replica("b", io.EOF, trimmed(0, 2), all[2]), true, "equal\ta\tb (2 trimmed)"},
		{replica("b", io.EOF, all[0], trimmed(1, 3)), true, "equal\ta\tb (2 trimmed)"},
		{replica("b", io.EOF, all[0], group(1, 2, "B"), all[2]), false, "DIFFERENT at position 1"},
		{replica("b", io.EOF, all[0], all[1], group(2, 8, "c")), false, "DIFFERENT at position 2"},
		{replica("b", io.EOF, all[0], all[2]), false, "b: error: it goes on at position 2 behind 1"},
		{replica("b", io.EOF, all[0]), false, "b: error: it ends at position 1 of 3"},
		{replica("b", errors.New("broken"), all[0]), false, "b: error: broken"},
	} {
		verdict, ok := compareReplicas([]*fetched{replica("a", io.EOF, all...), c.other}, 3)
		require.Equal(t, c.ok, ok, fmt.Sprint(i, verdict))
		require.Contains(t, verdict, c.want, i)
	}
	// Which is right, a majority says.
	verdict, ok := compareReplicas([]*fetched{
		replica("a", io.EOF, all...), replica("b", io.EOF, all[0], group(1, 2, "B"), all[2]), replica("c", io.EOF, all...),
	}, 3)
	require.False(t, ok)
	require.Contains(t, verdict, "\tRIGHT: a, c (2 of 3)\tWRONG: b, whose scrubber")
	verdict, _ = compareReplicas([]*fetched{replica("a", io.EOF, all...), replica("b", io.EOF, all[0], group(1, 2, "B"), all[2])}, 3)
	require.Contains(t, verdict, "\tno majority says which is right")
	verdict, ok = compareReplicas(nil, 3)
	require.False(t, ok)
	require.Contains(t, verdict, "no replica holds all of it")
}
