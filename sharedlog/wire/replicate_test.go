package wire

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// decodeReplicate returns the groups of a message.
func decodeReplicate(b []byte) (groups []Placed, err error) {
	err = DecodeReplicate(b, func(p Placed, _ *Decoded) { groups = append(groups, p) })
	return groups, err
}

// The bytes of a message from a primary to a backup.
func TestReplicate(t *testing.T) {
	bodies := twoGroups()
	groups := []Placed{{5, bodies[0]}, {6, bodies[1]}}
	parts := ReplicateParts(groups)
	require.Len(t, parts, 4)
	require.Same(t, &bodies[1].Bytes[0], &parts[3][0], "bodies are not copied")
	b := slices.Concat(parts...)
	require.Equal(t, "0500000000000000"+goldenFirst+goldenSecond, hex.EncodeToString(b))
	got, err := decodeReplicate(b)
	require.NoError(t, err)
	require.Equal(t, groups, got)
	for n := range b {
		got, err := decodeReplicate(b[:n])
		require.Equal(t, n == 8 || n == 8+(len(b)-8)/2, err == nil, "%d bytes", n) // no group, one group
		require.Less(t, len(got), 2)
		if err != nil {
			require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		}
	}
}

// The bytes of a length.
func TestLength(t *testing.T) {
	b := EncodeLength(0x0102)
	require.Equal(t, "0201000000000000", hex.EncodeToString(b))
	n, err := DecodeLength(b)
	require.NoError(t, err)
	require.EqualValues(t, 0x0102, n)
	for _, b := range [][]byte{nil, b[:7], append(b, 0)} {
		_, err = DecodeLength(b)
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	}
}

// A digest covers the body, the LSN, the number of records and the outcome.
func TestDigest(t *testing.T) {
	d := Digest([]byte("body"), 9, 2, true)
	require.Equal(t, uint32(0x9e486f0f), d)
	for _, other := range []uint32{Digest([]byte("bode"), 9, 2, true), Digest([]byte("body"), 10, 2, true), Digest([]byte("body"), 9, 3, true), Digest([]byte("body"), 9, 2, false)} {
		require.NotEqual(t, d, other)
	}
}

// For any input, DecodeReplicate fails or returns groups that encode to the same bytes.
func FuzzReplicate(f *testing.F) {
	bodies := twoGroups()
	f.Add(slices.Concat(ReplicateParts([]Placed{{5, bodies[0]}, {6, bodies[1]}})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		groups, err := decodeReplicate(b)
		if err == nil && len(groups) > 0 {
			require.Equal(t, b, slices.Concat(ReplicateParts(groups)...))
		}
	})
}
