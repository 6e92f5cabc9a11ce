package segment

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
)

// bytesOf returns the bytes of the frame in a file.
func bytesOf(f *Frame, position, salt uint64) []byte {
	f.finish(position, salt)
	return bytes.Join(f.bufs, nil)
}

func drawGroup(t *rapid.T) sharedlog.Group {
	data := rapid.SliceOfN(rapid.Byte(), 0, 40)
	free := func(name string) bool { return !sharedlog.Reserved(name) } // a job's name needs that job's key
	g := sharedlog.Group{
		Writer:  rapid.StringN(1, 20, 60).Draw(t, "writer"),
		Number:  rapid.Uint64Min(1).Draw(t, "number"),
		Records: make([]sharedlog.Record, rapid.IntRange(1, 6).Draw(t, "records")),
	}
	if rapid.Bool().Draw(t, "conditional") {
		g.If = sharedlog.Condition{Key: rapid.StringN(1, 10, 40).Filter(free).Draw(t, "key"), Value: data.Draw(t, "value")}
		if len(g.If.Value) == 0 {
			g.If.Value = nil
		}
	}
	for i := range g.Records {
		for _, tag := range rapid.SliceOfNDistinct(rapid.StringN(1, 12, 40).Filter(free), 1, 4, rapid.ID).Draw(t, "tags") {
			g.Records[i].Tags = append(g.Records[i].Tags, sharedlog.Tag(tag))
		}
		g.Records[i].Data = data.Draw(t, "data")
	}
	return g
}

func TestFrameRoundTrip(t *testing.T) {
	// One Frame and one Decoded throughout: they keep nothing of an earlier use.
	var f Frame
	var d Decoded
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t)
		require.NoError(t, g.Validate())
		opens := rapid.Bool().Draw(t, "opens")
		position, salt := rapid.Uint64().Draw(t, "position"), rapid.Uint64().Draw(t, "salt")
		f.Encode(&g, opens)
		require.Equal(t, len(g.Records), f.Records())
		b := bytesOf(&f, position, salt)
		require.Len(t, b, f.Size())
		behind := append(bytes.Clone(b), rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "behind")...)
		require.NoError(t, d.Decode(behind, salt))
		require.Equal(t, position, d.Position)
		require.Equal(t, position+uint64(len(g.Records)), d.End())
		require.Equal(t, opens, d.Opens)
		require.Equal(t, g, d.Group)
		require.Equal(t, len(b), d.Size)

		require.ErrorContains(t, d.Decode(b, salt+1), "checksum", "another segment's salt")
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		require.Error(t, d.Decode(b, salt), "one bit changed")
		b = b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
		require.Error(t, d.Decode(b, salt), "cut short")
	})
}

// TestFrameBytes pins the format: later builds read what an earlier one has written.
func TestFrameBytes(t *testing.T) {
	g := sharedlog.Group{
		Writer: "w", Number: 300, If: sharedlog.Condition{Key: "k", Value: []byte("v")},
		Records: []sharedlog.Record{
			{Tags: []sharedlog.Tag{"a", "bc"}, Data: []byte("one")},
			{Tags: []sharedlog.Tag{"a"}, Data: nil},
			{Tags: []sharedlog.Tag{"a"}, Data: []byte("three")},
		},
	}
	var f, plain Frame
	f.encode(&g, true, true)
	plain.Encode(&g, true)
	for _, frame := range []*Frame{&f, &plain} {
		var d Decoded
		require.NoError(t, d.Decode(bytesOf(frame, 7, 5), 5))
		require.Equal(t, g.Records[2], d.Group.Records[2])
		require.Equal(t, frame == &f, d.Sums != nil)
	}
	got := hex.Dump(bytesOf(&plain, 7, 0x1122334455667788)) +
		hex.Dump(bytesOf(&f, 7, 0x1122334455667788)) +
		hex.Dump(appendHeader(nil, ID{3, 9}, 0x1122334455667788)) +
		hex.Dump(trailer{4096, 77, 0xaabbccdd}.append(nil, 0x1122334455667788))
	golden := filepath.Join("testdata", "format.txt")
	if os.Getenv("TAILRACE_REWRITE") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestDecodedAliasesItsBuffer(t *testing.T) {
	g := sharedlog.Group{Writer: "w", Number: 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"tag"}, Data: []byte("data")}}}
	var f Frame
	f.Encode(&g, false)
	b := bytesOf(&f, 0, 0)
	var d Decoded
	require.NoError(t, d.Decode(b, 0))
	for i := range b {
		b[i] = 'x'
	}
	require.Equal(t, "xxxx", string(d.Group.Records[0].Data))
	require.Equal(t, sharedlog.Tag("xxx"), d.Group.Records[0].Tags[0])
}

func TestLargestGroup(t *testing.T) {
	tags := make([]sharedlog.Tag, sharedlog.MaxGroupTags)
	for i := range tags {
		tags[i] = sharedlog.Tag(strings.Repeat("t", sharedlog.MaxTagBytes-4) + string(rune(0x4e00+i)))
	}
	g := sharedlog.Group{
		Writer: strings.Repeat("w", sharedlog.MaxNameBytes), Number: 1<<64 - 1,
		If: sharedlog.Condition{
			Key:   strings.Repeat("k", sharedlog.MaxNameBytes),
			Value: make([]byte, sharedlog.MaxValueBytes),
		},
	}
	for _, tag := range tags {
		g.Records = append(g.Records, sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: make([]byte, sharedlog.MaxGroupBytes/len(tags))})
	}
	require.NoError(t, g.Validate())
	var f Frame
	f.Encode(&g, true)
	require.LessOrEqual(t, f.Size(), MaxFrameSize)
	var d Decoded
	require.NoError(t, d.Decode(bytesOf(&f, 1, 2), 2))
	require.Equal(t, g, d.Group)
}

func TestFrameCostsNoAllocation(t *testing.T) {
	g := sharedlog.Group{Writer: "w", Number: 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"a", "b"}, Data: make([]byte, 100)}}}
	var f Frame
	var d Decoded
	f.Encode(&g, false)
	b := bytesOf(&f, 1, 2)
	require.NoError(t, d.Decode(b, 2))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		f.Encode(&g, false)
		f.finish(1, 2)
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = d.Decode(b, 2) }))
}

// FuzzDecode passes the decoder bytes with a valid checksum, so that the fuzzer gets past it; a
// decoded frame must encode to the same bytes again.
func FuzzDecode(f *testing.F) {
	var frame Frame
	g := sharedlog.Group{Writer: "w", Number: 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"a"}, Data: []byte("d")}}}
	frame.Encode(&g, false)
	f.Add(bytesOf(&frame, 1, 5))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Decoded
		_ = d.Decode(b, 5)
		if len(b) < FixedSize {
			return
		}
		size, err := frameSize(b)
		if err != nil || size > len(b) {
			return
		}
		b = bytes.Clone(b[:size])
		putCRC(b, 5)
		if d.Decode(b, 5) != nil {
			return
		}
		var again Frame
		again.encode(&d.Group, d.Opens, d.Sums != nil)
		// A length may be encoded in more bytes than necessary, so sizes differ.
		require.LessOrEqual(t, again.Size(), size)
		var e Decoded
		require.NoError(t, e.Decode(bytesOf(&again, d.Position, 5), 5))
		require.Equal(t, d.Group, e.Group)
	})
}

func BenchmarkEncode(b *testing.B) {
	for _, size := range []int{1 << 10, 128 << 10} {
		b.Run(sizeName(size), func(b *testing.B) {
			g := benchGroup(size)
			var f Frame
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				f.Encode(&g, false)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range []int{1 << 10, 128 << 10} {
		b.Run(sizeName(size), func(b *testing.B) {
			g := benchGroup(size)
			var f Frame
			var d Decoded
			f.Encode(&g, false)
			buf := bytesOf(&f, 0, 0)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Decode(buf, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
