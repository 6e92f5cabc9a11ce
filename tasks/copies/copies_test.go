package copies

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// The bytes of each message. Processes of other releases send and read them.
func TestGolden(t *testing.T) {
	some := Seal(append(Begin(8), "items"...))
	require.Equal(t, 5, Size(some))
	for _, c := range []struct {
		frame []byte
		bytes string
		want  Frame
	}{
		{some, "01 01 " + sum(some) + " 6974656d73", Frame{Kind: Some, Items: []byte("items")}},
		{End(300), "01 02 " + sum(End(300)) + " ac02", Frame{Kind: Whole, Total: 300}},
		{Refusal(), "01 03 " + sum(Refusal()), Frame{Kind: None}},
	} {
		require.Equal(t, strings.ReplaceAll(c.bytes, " ", ""), hex.EncodeToString(c.frame))
		got, err := Parse(c.frame)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	require.Equal(t, "1a78a06c", sum(End(300)))
	r := Request{Stage: 1, Task: 2, Nonce: 1<<64 - 1, Commit: 4, Group: 5}
	b, err := r.Bytes()
	require.NoError(t, err)
	require.JSONEq(t, `{"stage":1,"task":2,"nonce":18446744073709551615,"commit":4,"group":5}`, string(b))
	got, err := ParseRequest(b)
	require.NoError(t, err)
	require.Equal(t, r, got)
	_, err = ParseRequest(b[:9])
	require.Equal(t, sharedlog.KindInvalid, sharedlog.KindOf(err))
}

func sum(frame []byte) string { return hex.EncodeToString(frame[2:6]) }

// A frame that has changed on its way, or that another build has written, is refused.
func TestParseRefuses(t *testing.T) {
	whole := Seal(append(Begin(8), "items"...))
	for i := range whole {
		for bit := range 8 {
			b := append([]byte(nil), whole...)
			b[i] ^= 1 << bit
			_, err := Parse(b)
			require.Error(t, err)
		}
		_, err := Parse(whole[:i])
		require.Equal(t, sharedlog.KindCorrupt, sharedlog.KindOf(err))
	}
	for _, c := range []struct {
		bad  []byte
		kind sharedlog.Kind
	}{
		{append(End(1), 0), sharedlog.KindCorrupt},
		{[]byte{version, byte(Whole), 0, 0, 0, 0}, sharedlog.KindCorrupt},
		{[]byte{version, byte(Whole), 0, 0, 0, 0, 0x80}, sharedlog.KindCorrupt},
		{append(Refusal(), 0), sharedlog.KindCorrupt},
		{BeginParts(0), sharedlog.KindCorrupt},
		{[]byte{version, 5, 0, 0, 0, 0}, sharedlog.KindVersion},
	} {
		_, err := Parse(Seal(c.bad))
		require.Equal(t, c.kind, sharedlog.KindOf(err), "%x", c.bad)
	}
	_, err := Parse(Seal([]byte{version + 1, byte(None), 0, 0, 0, 0}))
	require.Equal(t, sharedlog.KindVersion, sharedlog.KindOf(err))
}

// Whatever the bytes, Parse returns an error or what makes them again.
func FuzzParse(f *testing.F) {
	f.Add(End(300))
	f.Add(Refusal())
	f.Add(Seal(append(Begin(8), "items"...)))
	f.Add(Seal(AppendPart(BeginParts(8), &Part{7, 1, []byte("items")})))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= header {
			Seal(b) // else it would find no body
		}
		got, err := Parse(b)
		if err != nil {
			return
		}
		switch got.Kind {
		case Some:
			require.Equal(t, b, Seal(append(Begin(0), got.Items...)))
		case Whole:
			again, err := Parse(End(got.Total))
			require.NoError(t, err)
			require.Equal(t, got, again)
		case None:
			require.Equal(t, b, Refusal())
		case Parts:
			frame := BeginParts(0)
			for i := range got.Parts {
				frame = AppendPart(frame, &got.Parts[i])
			}
			again, err := Parse(Seal(frame))
			require.NoError(t, err)
			require.Equal(t, got, again)
		}
	})
}

// Sub-groups: the bytes of a request for some of them, and of a frame with two.
func TestGoldenParts(t *testing.T) {
	b, err := (&Request{Stage: 1, Task: 2, Nonce: 3, Commit: 4, Group: 5, Of: 256, Parts: []int{256, 7}}).Bytes()
	require.NoError(t, err)
	require.JSONEq(t, `{"stage":1,"task":2,"nonce":3,"commit":4,"group":5,"of":256,"parts":[256,7]}`, string(b))
	parts := []Part{{256, 3, []byte("head")}, {7, 0, []byte{}}}
	frame := BeginParts(32)
	for i := range parts {
		frame = AppendPart(frame, &parts[i])
	}
	require.Equal(t, "0104"+sum(Seal(frame))+"8002"+"03"+"04"+"68656164"+"07"+"00"+"00", hex.EncodeToString(frame))
	got, err := Parse(frame)
	require.NoError(t, err)
	require.Equal(t, Frame{Kind: Parts, Parts: parts}, got)
	for i := header; i < len(frame); i++ {
		cut := Seal(append([]byte(nil), frame[:i]...))
		if got, err := Parse(cut); err == nil { // the first part is whole
			require.Equal(t, parts[:1], got.Parts)
		} else {
			require.Equal(t, sharedlog.KindCorrupt, sharedlog.KindOf(err))
		}
	}
}
