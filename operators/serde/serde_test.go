package serde_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/serde"
)

type point struct {
	X     int64
	Label string
	Tags  []string
}

var pointSerde = serde.New("point",
	func(dst []byte, p *point) []byte {
		dst = serde.AppendString(serde.AppendInt64(dst, p.X), p.Label)
		return serde.Slice(serde.String).Append(dst, &p.Tags)
	},
	func(r *serde.Reader, p *point) {
		p.X, p.Label = r.Int64(), r.String()
		serde.Take(r, serde.Slice(serde.String), &p.Tags)
	})

// TestGolden: the bytes are a format and must not change.
func TestGolden(t *testing.T) {
	golden(t, serde.Bool, true, "\x01")
	golden(t, serde.Int64, 0, "\x00")
	golden(t, serde.Int64, -1, "\x01")
	golden(t, serde.Int64, math.MinInt64, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	golden(t, serde.Int32, -300, "\xd7\x04")
	golden(t, serde.Int, 64, "\x80\x01")
	golden(t, serde.Uint64, 300, "\xac\x02")
	golden(t, serde.Uint32, math.MaxUint32, "\xff\xff\xff\xff\x0f")
	golden(t, serde.Float64, 1, "\x00\x00\x00\x00\x00\x00\xf0\x3f")
	golden(t, serde.String, "héllo", "\x06h\xc3\xa9llo")
	golden(t, serde.Bytes, []byte{1, 2}, "\x02\x01\x02")
	golden(t, serde.Unit, struct{}{}, "")
	golden(t, serde.Slice(serde.Int64), []int64{1, -1}, "\x02\x02\x01")
	golden(t, serde.Pair(serde.Int64, serde.String), serde.Tuple[int64, string]{First: 1, Second: "a"}, "\x02\x01a")
	golden(t, serde.JSON[map[string]int](), map[string]int{"b": 1, "a": 2}, "\x0d{\"a\":2,\"b\":1}")
	golden(t, pointSerde, point{-2, "p", []string{"x"}}, "\x03\x01p\x01\x01x")
}

func golden[T any](t *testing.T, sd serde.Serde[T], v T, want string) {
	t.Helper()
	b := sd.Append([]byte("before"), &v)
	require.Equal(t, "before"+want, string(b))
	var got T
	n, err := sd.Decode(append([]byte(want), "behind"...), &got)
	require.NoError(t, err)
	require.Equal(t, len(want), n)
	require.Equal(t, v, got)
	for i := range len(want) { // no prefix is a value
		_, err := sd.Decode([]byte(want)[:i:i], &got)
		require.Error(t, err, "%d of %d bytes", i, len(want))
	}
}

func TestProto(t *testing.T) {
	sd := serde.Proto[*wrapperspb.StringValue]()
	v := wrapperspb.String("x")
	b := sd.Append(nil, &v)
	require.Equal(t, "\x03\x0a\x01x", string(b))
	var a, c *wrapperspb.StringValue
	_, err := sd.Decode(b, &a)
	require.NoError(t, err)
	c = a
	_, err = sd.Decode(sd.Append(nil, ptr(wrapperspb.String("y"))), &a)
	require.NoError(t, err)
	require.Equal(t, "x", c.Value, "a decoded message must not be reused")
	require.Equal(t, "proto(google.protobuf.StringValue)", serde.NameOf(sd))
	require.Panics(t, func() { sd.Append(nil, ptr(wrapperspb.String("\xff"))) })
	_, err = serde.Proto[*structpb.Struct]().Decode([]byte("\x02\xff\xff"), ptr((*structpb.Struct)(nil)))
	require.ErrorIs(t, err, serde.ErrMalformed)
}

func ptr[T any](v T) *T { return &v }

// TestClone: a clone shares no memory with its original; a decoded value does share it with its
// source.
func TestClone(t *testing.T) {
	v := point{1, "label", []string{"tag"}}
	b := pointSerde.Append(nil, &v)
	var aliasing point
	_, err := pointSerde.Decode(b, &aliasing)
	require.NoError(t, err)
	clone, err := serde.Clone(pointSerde, &aliasing)
	require.NoError(t, err)
	clear(b)
	require.Equal(t, v, clone)
	require.Equal(t, "\x00\x00\x00\x00\x00", aliasing.Label)
	require.True(t, serde.Plain(serde.Int64))
	require.False(t, serde.Plain(serde.String))
	require.False(t, serde.Plain(pointSerde))
}

// TestShortestForm: one value, one encoding, or a key would be in two groups.
func TestShortestForm(t *testing.T) {
	var v uint64
	_, err := serde.Uint64.Decode([]byte{0x80, 0x00}, &v)
	require.ErrorIs(t, err, serde.ErrMalformed)
	var u uint32
	_, err = serde.Uint32.Decode([]byte{0xff, 0xff, 0xff, 0xff, 0x1f}, &u)
	require.ErrorIs(t, err, serde.ErrMalformed)
	var b bool
	_, err = serde.Bool.Decode([]byte{2}, &b)
	require.ErrorIs(t, err, serde.ErrMalformed)
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := point{rapid.Int64().Draw(t, "x"), rapid.String().Draw(t, "label"), rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "tags")}
		b := pointSerde.Append(nil, &v)
		var got point
		n, err := pointSerde.Decode(b, &got)
		require.NoError(t, err)
		require.Equal(t, len(b), n)
		require.Equal(t, v, got)
	})
}

// FuzzDecode: bytes that decode encode to the same bytes again; other bytes are errors, and none
// panics.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x03\x01p\x01\x01x"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		check(t, pointSerde, b)
		check(t, serde.Slice(serde.Pair(serde.Uint64, serde.Bytes)), b)
		check(t, serde.Slice(serde.Bool), b)
		check(t, serde.Pair(serde.Int32, serde.Float64), b)
	})
}

func check[T any](t *testing.T, sd serde.Serde[T], b []byte) {
	var v T
	n, err := sd.Decode(b, &v)
	if err != nil {
		return
	}
	if again := sd.Append(nil, &v); !bytes.Equal(again, b[:n]) {
		t.Fatalf("%x decodes to %v, which encodes to %x", b[:n], v, again)
	}
}
