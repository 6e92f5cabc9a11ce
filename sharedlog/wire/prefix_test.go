package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

func message(t *testing.T, opens bool) []byte {
	t.Helper()
	g := sharedlog.Group{
		Writer: "w", Number: 7, If: sharedlog.Condition{Key: "k", Value: []byte("v")},
		Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"a", "b"}, Data: []byte("data")}, {Tags: []sharedlog.Tag{"c"}}},
	}
	require.NoError(t, g.Validate())
	var w Body
	w.Encode(&g, opens)
	b := append(w.AppendPrefix(nil), w.Bytes...)
	rest, err := new(Body).Take(append(b, "rest"...))
	require.NoError(t, err)
	require.Equal(t, "rest", string(rest))
	return b
}

// take decodes a message.
func take(b []byte) (d Decoded, err error) {
	var w Body
	if _, err := w.Take(b); err != nil {
		return d, err
	}
	return d, w.Decode(&d)
}

// Any flipped bit in a group on the wire is an error.
func TestEveryBitIsGuarded(t *testing.T) {
	b := message(t, true)
	d, err := take(b)
	require.NoError(t, err)
	require.True(t, d.Opens)
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		_, err := take(b)
		require.Error(t, err, "bit %d of byte %d", i%8, i/8)
		b[i/8] ^= 1 << (i % 8)
	}
	for n := range b {
		_, err := take(b[:n])
		require.Error(t, err, "the first %d bytes", n)
	}
}

// An inconsistent body with a correct checksum is an error, too.
func TestBodiesThatDoNotAddUp(t *testing.T) {
	var w Body
	_, err := w.Take(message(t, false))
	require.NoError(t, err)
	var d Decoded
	require.NoError(t, w.Decode(&d))
	require.ErrorContains(t, d.Decode(append(w.Bytes, 'x'), w.Head, w.Records), "does not add up", "data that belongs to no record")
	require.ErrorContains(t, d.Decode(w.Bytes[:len(w.Bytes)-1], w.Head, w.Records), "bytes of the")
	require.Error(t, d.Decode(w.Bytes, w.Head, w.Records-1), "a part of the head that belongs to no record")
	require.Error(t, d.Decode(w.Bytes, w.Head, w.Records+1))
	w.Bytes[0] |= 4
	require.ErrorContains(t, w.Decode(&d), "does not add up", "an unknown flag")
}

// The flag that opens a session can be set and cleared when a group is sent again.
func TestSetOpens(t *testing.T) {
	for _, was := range []bool{false, true} {
		for _, opens := range []bool{false, true} {
			var w Body
			_, err := w.Take(message(t, was))
			require.NoError(t, err)
			SetOpens(w.Bytes[:w.Head], opens)
			var d Decoded
			require.NoError(t, w.Decode(&d))
			require.Equal(t, opens, d.Opens)
		}
	}
}

// A trimmed range is never empty: a copy would not make progress.
func TestEmptyTrimmedRange(t *testing.T) {
	var f Fetched
	_, err := f.Take(AppendFetched(nil, &Fetched{Kind: FetchedTrimmed, From: 4, To: 5, Index: 9}))
	require.NoError(t, err)
	for _, to := range []uint64{4, 3} {
		_, err = f.Take(AppendFetched(nil, &Fetched{Kind: FetchedTrimmed, From: 4, To: to, Index: 9}))
		require.ErrorContains(t, err, "invalid trimmed range")
	}
}
