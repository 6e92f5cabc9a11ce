package wire

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// The bytes of each kind of row; and a truncated row is noticed.
func TestFetched(t *testing.T) {
	g := sharedlog.Group{Writer: "w", Number: 2, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: []byte("d")}}}
	group := Fetched{Kind: FetchedGroup, From: 5, To: 6, First: 9}
	group.Body.Encode(&g, true)
	plain := group // of a program of feature level 1
	head := AppendHead(nil, &g, true, false)
	plain.Body = Body{Head: len(head), Records: 1, Bytes: append(head, 'd')}
	plain.Body.CRC = CRC(plain.Body.Bytes)
	rows := []Fetched{
		plain,
		group,
		{Kind: FetchedTrimmed, From: 6, To: 0x0108, Index: 0x77},
		{Kind: FetchedWriters, Table: []byte{0xaa, 0xbb}},
	}
	golden := []string{
		"0500000000000000" + "0900000000000000" + "01" + "b8e248d3" + "0a000000" + "01000000" + "01000000" + "010177020000010178" + "01" + "64",
		"0500000000000000" + "0900000000000000" + "01" + "3fb42a97" + "0e000000" + "01000000" + "01000000" + "0301770200" + "00" + "a9170a7b" + "010178" + "01" + "64",
		"0600000000000000" + "0801000000000000" + "02" + "7700000000000000",
		"0200000000000000" + "0000000000000000" + "03" + "aabb",
	}
	var all []byte
	for i := range rows {
		b := AppendFetched(nil, &rows[i])
		require.Equal(t, golden[i], hex.EncodeToString(b))
		for n := range b {
			_, err := new(Fetched).Take(b[:n])
			require.Error(t, err, "row %d cut to %d bytes", i, n)
		}
		all = append(all, b...)
	}
	for i := range rows {
		var f Fetched
		var err error
		all, err = f.Take(all)
		require.NoError(t, err)
		require.Equal(t, rows[i], f)
	}
	require.Empty(t, all)
}

// For any input, Take fails or returns a row that encodes to the same bytes.
func FuzzFetched(f *testing.F) {
	f.Add(AppendFetched(nil, &Fetched{Kind: FetchedTrimmed, From: 1, To: 2}))
	f.Add(AppendFetched(nil, &Fetched{Kind: FetchedWriters, Table: []byte("t")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var row Fetched
		rest, err := row.Take(b)
		if err == nil && row.Kind != FetchedWriters { // Take ignores the second number of writers
			require.Equal(t, b[:len(b)-len(rest)], AppendFetched(nil, &row))
		}
	})
}
