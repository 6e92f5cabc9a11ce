package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

func sumsOf(entries []sharedlog.Entry) (sums []Sum) {
	for i := range entries {
		sum, _ := Compute(&entries[i].Record, nil)
		sums = append(sums, sum)
	}
	return sums
}

var sessionEntries = []sharedlog.Entry{
	{LSN: 300, Record: sharedlog.Record{Tags: []sharedlog.Tag{"x", "yz"}, Data: []byte("d")}},
	{LSN: 301, Record: sharedlog.Record{Tags: []sharedlog.Tag{"x"}}},
}

// add adds a decoded part to a message.
func (m *SessionMessage) add(p *SessionPart) {
	switch p.Kind {
	case PartHeartbeat:
		m.Heartbeat()
	case PartBatch:
		m.Batch(p.Cursor, p.Frontier, p.Opened, p.Entries, nil)
	case PartSummed:
		m.Batch(p.Cursor, p.Frontier, p.Opened, p.Entries, append(sumsOf(p.Entries), make([]Sum, 1)...))
	case PartFrontier:
		m.Frontier(p.Shard, p.Frontier, p.Opened, p.Upto, p.Except)
	case PartError:
		m.Error(p.Cursor, p.Err)
	}
}

// The bytes of each kind of part, what they decode to, and that a truncated part is noticed.
func TestSessionParts(t *testing.T) {
	var all SessionMessage
	var want []SessionPart
	for _, x := range []struct {
		golden string
		part   SessionPart
	}{
		{"00", SessionPart{Kind: PartHeartbeat}},
		{"01" + "07" + "ae02" + "03" + "02" + "ac02" + "02" + "0178" + "02797a" + "0164" + "ad02" + "01" + "0178" + "00", SessionPart{Kind: PartBatch, Cursor: 7, Frontier: 302, Opened: 3, Entries: sessionEntries}},
		{"04" + "07" + "ae02" + "03" + "02" + "ac02" + "02" + "0178" + "02797a" + "0164" + "b51a2e07" + "ad02" + "01" + "0178" + "00" + "13652e12", SessionPart{Kind: PartSummed, Cursor: 7, Frontier: 302, Opened: 3, Entries: sessionEntries}},
		{"02" + "05" + "ae02" + "03" + "09" + "00", SessionPart{Kind: PartFrontier, Shard: 5, Frontier: 302, Opened: 3, Upto: 9}},
		{"02" + "05" + "ae02" + "03" + "09" + "02" + "04" + "8001", SessionPart{Kind: PartFrontier, Shard: 5, Frontier: 302, Opened: 3, Upto: 9, Except: []uint64{4, 128}}},
		{"03" + "07" + "07" + "0d" + hex.EncodeToString([]byte("trimmed: gone")), SessionPart{Kind: PartError, Cursor: 7, Err: sharedlog.Errorf(sharedlog.KindTrimmed, "gone")}},
		{"03" + "07" + "00" + "05" + hex.EncodeToString([]byte("plain")), SessionPart{Kind: PartError, Cursor: 7, Err: sharedlog.Errorf(sharedlog.KindOther, "plain")}},
	} {
		var m SessionMessage
		require.True(t, m.Empty())
		m.add(&x.part)
		require.False(t, m.Empty())
		b := slices.Concat(m.Take()...)
		require.Equal(t, x.golden, hex.EncodeToString(b))
		var p SessionPart
		rest, err := p.Take(append(b, "rest"...))
		require.NoError(t, err)
		require.Equal(t, "rest", string(rest))
		require.Equal(t, x.part, p)
		for n := range b {
			_, err := new(SessionPart).Take(b[:n])
			require.Error(t, err, "%x", b[:n])
		}
		all.add(&x.part)
		want = append(want, x.part)
	}
	b := slices.Concat(all.Take()...)
	require.True(t, all.Empty())
	var p SessionPart
	for _, w := range want { // with one SessionPart: nothing is left over from the part before
		var err error
		b, err = p.Take(b)
		require.NoError(t, err)
		require.Equal(t, len(w.Except), len(p.Except))
		if len(p.Except) == 0 {
			p.Except = nil
		}
		require.Equal(t, w, p)
	}
	require.Empty(t, b)
	_, err := p.Take([]byte{5})
	require.Error(t, err, "an unknown kind")
}

// An error of a server that has no kind arrives with its text.
func TestErrorWithoutKind(t *testing.T) {
	var m SessionMessage
	m.Error(1, errors.New("plain"))
	var p SessionPart
	_, err := p.Take(slices.Concat(m.Take()...))
	require.NoError(t, err)
	require.EqualError(t, p.Err, "plain")
}

// Large data is not copied, and counts for the size of the message.
func TestLargeDataIsNotCopied(t *testing.T) {
	large, small := bytes.Repeat([]byte("l"), smallData+1), bytes.Repeat([]byte("s"), smallData)
	tags := []sharedlog.Tag{"x"}
	entries := []sharedlog.Entry{{LSN: 1, Record: sharedlog.Record{Tags: tags, Data: large}}, {LSN: 2, Record: sharedlog.Record{Tags: tags, Data: small}}}
	var m SessionMessage
	require.EqualValues(t, len(large)+len(small), m.Batch(7, 302, 3, entries, nil))
	parts := m.Take()
	require.Len(t, parts, 3)
	require.Same(t, &large[0], &parts[1][0])
	var p SessionPart
	rest, err := p.Take(slices.Concat(parts...))
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, entries, p.Entries)
	require.False(t, m.Full())
	for i := range entries {
		entries[i].Data = make([]byte, MessageBytes)
	}
	m.Batch(7, 302, 3, entries, nil)
	require.True(t, m.Full())
	m.Take()
	require.False(t, m.Full())
}

// A record that does not match its checksum is named.
func TestDamagedRecord(t *testing.T) {
	var m SessionMessage
	m.Batch(7, 302, 3, sessionEntries, sumsOf(sessionEntries))
	b := slices.Concat(m.Take()...)
	b[13] ^= 1 // the data of the first record
	var p SessionPart
	_, err := p.Take(b)
	require.Error(t, err)
	require.EqualValues(t, 7, p.Cursor)
	require.EqualValues(t, 300, p.Damaged)
}

// For any input, Take fails or returns a part that encodes to bytes which decode to the same part.
func FuzzSession(f *testing.F) {
	var m SessionMessage
	for _, p := range []SessionPart{
		{Kind: PartHeartbeat},
		{Kind: PartBatch, Cursor: 1, Entries: sessionEntries},
		{Kind: PartSummed, Cursor: 1, Entries: sessionEntries},
		{Kind: PartFrontier, Except: []uint64{3}},
		{Kind: PartError, Err: sharedlog.ErrFull},
	} {
		m.add(&p)
		f.Add(slices.Concat(m.Take()...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, again SessionPart
		if _, err := p.Take(b); err != nil {
			return
		}
		var m SessionMessage
		m.add(&p)
		rest, err := again.Take(slices.Concat(m.Take()...))
		require.NoError(t, err)
		require.Empty(t, rest)
		if p.Kind == PartError { // a text that begins with its kind's name loses it
			require.Equal(t, sharedlog.KindOf(p.Err), sharedlog.KindOf(again.Err))
			p.Err, again.Err = nil, nil
		}
		require.Equal(t, p, again)
	})
}

// BenchmarkSession measures one batch as storage nodes encode it and clients decode it.
func BenchmarkSession(b *testing.B) {
	var entries []sharedlog.Entry
	for i := range 64 {
		entries = append(entries, sharedlog.Entry{LSN: sharedlog.LSN(1000 + i), Record: sharedlog.Record{Tags: []sharedlog.Tag{"job/stage/17", "job/stage/all"}, Data: make([]byte, 200)}})
	}
	sums := sumsOf(entries)
	var m SessionMessage
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Batch(7, 2000, 3, entries, sums)
			m.Take()
		}
	})
	m.Batch(7, 2000, 3, entries, sums)
	message := slices.Concat(m.Take()...)
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var p SessionPart
			if _, err := p.Take(message); err != nil {
				b.Fatal(err)
			}
		}
	})
}
