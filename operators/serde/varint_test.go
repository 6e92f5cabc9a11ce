package serde

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Uint64 reads numbers eight bytes at a time where it can; binary.Uvarint and rule 2 (the shortest
// form only) define the right results, at the end of the bytes and before it.
func TestUint64IsUvarint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xff})), 0, 14).Draw(t, "bytes")
		if rapid.Bool().Draw(t, "a number") {
			v := rapid.Uint64().Draw(t, "v") >> rapid.IntRange(0, 63).Draw(t, "bits")
			b = append(binary.AppendUvarint(nil, v), b...)
		}
		want, n := binary.Uvarint(b)
		r := NewReader(b)
		got := r.Uint64()
		switch {
		case n == 0:
			require.ErrorIs(t, r.Err(), ErrShort)
		case n < 0 || n > 1 && b[n-1] == 0:
			require.ErrorIs(t, r.Err(), ErrMalformed)
		default:
			require.NoError(t, r.Err())
			require.Equal(t, want, got)
			require.Equal(t, n, r.Pos())
		}
	})
}

func BenchmarkUint64(b *testing.B) {
	var src []byte
	for i := range uint64(512) {
		src = binary.AppendUvarint(src, i*i*i*131)
	}
	for b.Loop() {
		r := ReaderOf(src)
		for range 512 {
			r.Uint64()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/number")
}
