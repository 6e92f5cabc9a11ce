package codec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each field is taken as it was appended, and a buffer that ends within it is noticed.
func TestReader(t *testing.T) {
	b := AppendString([]byte{0xac, 0x02}, "text")       // 300, "text"
	b = append(AppendString(b, []byte(nil)), 2, 'x')    // "", two elements, 'x'
	b = append(b, 'y', 1, 2, 3, 4, 'a', 'b', 'c', 0x7f) // 'y', 0x04030201, "abc", 127
	read := func(b []byte) (r Reader, all []any) {
		r = Reader{B: b}
		return r, []any{r.Uvarint(), r.Bytes(), r.Text(), r.Count(1), r.Byte(), r.Byte(), r.Uint32(), string(r.Take(3)), r.Uvarint(), r.Bad, len(r.B)}
	}
	_, all := read(b)
	require.Equal(t, []any{uint64(300), []byte("text"), "", 2, byte('x'), byte('y'), uint32(0x04030201), "abc", uint64(127), false, 0}, all)
	for n := range b {
		_, all := read(b[:n])
		require.Equal(t, true, all[9], "the first %d bytes", n)
	}
	r := Reader{B: []byte{3, 'a', 'b', 'c'}}
	require.Nil(t, (&Reader{B: []byte{0}}).Bytes())
	s := r.Bytes()
	require.Equal(t, 3, cap(s), "append does not overwrite what follows")
	require.Equal(t, "abc", string(s))
}

// More elements than the buffer can contain are malformed.
func TestCount(t *testing.T) {
	r := Reader{B: []byte{2, 0, 0, 0, 0, 0}}
	require.Zero(t, r.Count(3))
	require.True(t, r.Bad)
	r = Reader{B: []byte{2, 0, 0, 0, 0, 0, 0}}
	require.Equal(t, 2, r.Count(3))
	require.False(t, r.Bad)
}

// No input makes a Reader panic, and after an error it stays bad.
func FuzzReader(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{0, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, b, calls []byte) {
		r := Reader{B: b}
		for _, c := range calls {
			bad := r.Bad
			switch c % 6 {
			case 0:
				r.Uvarint()
			case 1:
				r.Bytes()
			case 2:
				r.Take(int(c))
			case 3:
				r.Byte()
			case 4:
				r.Uint32()
			case 5:
				r.Count(1 + int(c))
			}
			require.True(t, r.Bad || !bad)
		}
	})
}
