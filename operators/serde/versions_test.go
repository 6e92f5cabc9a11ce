package serde_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/serde"
)

type grown struct {
	A int64
	B string
}

var (
	grown1 = serde.New("grown 1",
		func(dst []byte, v *grown) []byte { return serde.AppendInt64(dst, v.A) },
		func(r *serde.Reader, v *grown) { *v = grown{A: r.Int64(), B: "none"} })
	grown2 = serde.New("grown 2",
		func(dst []byte, v *grown) []byte { return serde.AppendString(serde.AppendInt64(dst, v.A), v.B) },
		func(r *serde.Reader, v *grown) { *v = grown{A: r.Int64(), B: r.String()} })
)

// Values of all versions are read, one behind the other, and those of later ones are an error.
func TestVersions(t *testing.T) {
	before, now := serde.Versions("grown", grown1), serde.Versions("grown", grown1, grown2)
	golden(t, now, grown{A: 7, B: "b"}, "\x02\x0e\x01b")
	require.Equal(t, "grown, versions 1 to 2", serde.NameOf(now))
	all := serde.Slice(now)
	b := append([]byte{3}, before.Append(nil, &grown{A: 1})...)
	b = now.Append(b, &grown{A: 2, B: "two"})
	b = before.Append(b, &grown{A: 3})
	var got []grown
	n, err := all.Decode(b, &got)
	require.NoError(t, err)
	require.Equal(t, len(b), n)
	require.Equal(t, []grown{{1, "none"}, {2, "two"}, {3, "none"}}, got)

	var v grown
	_, err = before.Decode(now.Append(nil, &v), &v)
	require.ErrorIs(t, err, serde.ErrMalformed)
	require.ErrorContains(t, err, "grown, versions 1 to 1: malformed")
	require.ErrorContains(t, err, "written by version 2")
	_, err = now.Decode([]byte{0}, &v)
	require.ErrorIs(t, err, serde.ErrMalformed)
	_, err = now.Decode(nil, &v)
	require.ErrorIs(t, err, serde.ErrShort)
}
