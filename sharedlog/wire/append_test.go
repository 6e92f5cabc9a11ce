package wire

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// twoGroups returns the bodies of two groups: the first opens its writer's session.
func twoGroups() (bodies [2]Body) {
	for i := range bodies {
		g := sharedlog.Group{Writer: "w", Number: uint64(2 + i), Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: []byte("d")}}}
		bodies[i].Encode(&g, i == 0)
	}
	return bodies
}

const (
	goldenFirst  = "3fb42a97" + "0e000000" + "01000000" + "01000000" + "0301770200" + "00" + "a9170a7b" + "010178" + "01" + "64"
	goldenSecond = "0e9dd5c1" + "0e000000" + "01000000" + "01000000" + "0201770300" + "00" + "a9170a7b" + "010178" + "01" + "64"
)

// submission returns a message with one submission.
func submission(sequence uint64, w *Body) []byte {
	return append(AppendSubmission(nil, sequence, w.CRC, w.Head, len(w.Bytes)-w.Head, w.Records), w.Bytes...)
}

// The bytes of a message with two submissions.
func TestSubmission(t *testing.T) {
	bodies := twoGroups()
	b := slices.Concat(submission(300, &bodies[0]), submission(301, &bodies[1]))
	require.Equal(t, "2c01000000000000"+goldenFirst+"2d01000000000000"+goldenSecond, hex.EncodeToString(b))
	for n := range b {
		var s Submission
		rest, err := s.Take(b[:n])
		require.True(t, err != nil || n >= len(b)/2, "%d bytes", n)
		if len(rest) > 0 {
			_, err = s.Take(rest)
			require.Error(t, err, "%d bytes", n)
		}
	}
	for i := range bodies {
		var s Submission
		var err error
		b, err = s.Take(b)
		require.NoError(t, err)
		require.EqualValues(t, 300+i, s.Sequence)
		require.Equal(t, bodies[i], s.Body)
		require.EqualValues(t, 2+i, s.Decoded.Group.Number)
		require.Equal(t, i == 0, s.Decoded.Opens)
	}
	require.Empty(t, b)
}

// The kinds of errors say whether a message was cut or a group is invalid.
func TestInvalidSubmission(t *testing.T) {
	bodies := twoGroups()
	b := submission(300, &bodies[0])
	_, err := new(Submission).Take(b[:7])
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	b[len(b)-1] ^= 1
	_, err = new(Submission).Take(b)
	require.ErrorIs(t, err, sharedlog.ErrInvalid)
	require.ErrorContains(t, err, "a group: checksum of a group is")
}

// The bytes of answers.
func TestAnswer(t *testing.T) {
	for _, x := range []struct {
		golden string
		answer Answer
	}{
		{"ac02" + "05", Answer{Sequence: 300, First: 5}},
		{"ac02" + "00" + "08" + "0e" + hex.EncodeToString([]byte("log full: disk")), Answer{Sequence: 300, Err: sharedlog.Errorf(sharedlog.KindFull, "disk")}},
	} {
		b := x.answer.Append(nil)
		require.Equal(t, x.golden, hex.EncodeToString(b))
		var a Answer
		rest, err := a.Take(append(b, "rest"...))
		require.NoError(t, err)
		require.Equal(t, "rest", string(rest))
		require.Equal(t, x.answer, a)
		for n := range b {
			_, err := a.Take(b[:n])
			require.Error(t, err, "%x", b[:n])
		}
	}
}

// For any input, Take fails or returns an answer that encodes to bytes which decode to the same
// answer.
func FuzzAnswer(f *testing.F) {
	f.Add((&Answer{Sequence: 300, First: 5}).Append(nil))
	f.Add((&Answer{Sequence: 300, Err: sharedlog.ErrFull}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a, again Answer
		if _, err := a.Take(b); err != nil {
			return
		}
		rest, err := again.Take(a.Append(nil))
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, sharedlog.KindOf(a.Err), sharedlog.KindOf(again.Err))
		require.Equal(t, a.Err == nil, again.Err == nil)
		a.Err, again.Err = nil, nil // a text that begins with its kind's name loses it
		require.Equal(t, a, again)
	})
}

// For any input, Take fails or returns a submission that encodes to the bytes that were taken.
func FuzzSubmission(f *testing.F) {
	bodies := twoGroups()
	f.Add(submission(300, &bodies[0]))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Submission
		rest, err := s.Take(b)
		if err != nil {
			return
		}
		require.Equal(t, b[:len(b)-len(rest)], submission(s.Sequence, &s.Body))
	})
}
