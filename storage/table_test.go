package storage

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
)

// A replica whose middle segments were trimmed, and which was restarted or copied on the way, never
// reports a number that was accepted as absent; and where it can know the outcome it returns it.
func TestWritersBehindTrims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}
		// The sublog, in segments of a few groups.
		var segments [][]Outcome
		last, void := map[string]uint64{}, map[string]uint64{}
		position := uint64(0)
		for range rapid.IntRange(1, 8).Draw(t, "segments") {
			var s []Outcome
			for range rapid.IntRange(1, 5).Draw(t, "groups") {
				w := rapid.SampledFrom(names[:3]).Draw(t, "writer")
				if last[w] == 0 {
					last[w] = rapid.Uint64Range(0, 3).Draw(t, "taken by an earlier home")
				}
				last[w]++
				if void[w] == 0 && rapid.IntRange(0, 9).Draw(t, "outcome") == 0 {
					void[w] = last[w]
				}
				f := Outcome{Head: Head{Position: position, Records: rapid.Uint64Range(1, 3).Draw(t, "records"), Writer: w, Number: last[w]}, First: sharedlog.LSN(1000 + position), Effect: void[w] == 0}
				position += f.Records
				s = append(s, f)
			}
			segments = append(segments, s)
		}
		// Some segments are trimmed at some time; before that the table may have been written, as
		// of the end of a segment.
		table, covered := NewWriters().AppendTable(nil, 0), uint64(0)
		live := NewWriters()
		for _, s := range segments {
			for i := range s {
				live.Learn(&s[i])
			}
			if rapid.Bool().Draw(t, "written down") {
				covered = s[len(s)-1].Position + s[len(s)-1].Records
				table = live.AppendTable(nil, covered)
			}
		}
		trimmed := make([]bool, len(segments))
		for i := range trimmed {
			trimmed[i] = rapid.Bool().Draw(t, "trimmed")
		}
		look := func(again *Writers) {
			there := map[string][]Outcome{} // after the writer's last gap
			outcomes := map[string]map[uint64]Outcome{}
			uncovered := uint64(0)
			for _, n := range names {
				outcomes[n] = map[uint64]Outcome{}
			}
			for i, s := range segments {
				end := s[len(s)-1].Position + s[len(s)-1].Records
				for j := range s {
					f := &s[j]
					outcomes[f.Writer][f.Number] = *f
					if trimmed[i] {
						there[f.Writer] = nil
						continue
					}
					there[f.Writer] = append(there[f.Writer], *f)
					again.Learn(f)
				}
				if trimmed[i] && end > covered {
					uncovered = end
					again.Missed(end)
				}
			}
			again.Seal()
			for _, n := range names {
				for number := uint64(1); number <= last[n]+2; number++ {
					v := again.Look(n, number)
					f, taken := outcomes[n][number]
					switch {
					case taken && f.Effect:
						require.Contains(t, []Decision{Taken, Forgotten}, v.Decision, "%s %d", n, number)
						if v.Decision == Taken {
							require.Equal(t, f.First, v.First)
						}
						if slices.ContainsFunc(there[n], func(o Outcome) bool { return o.Number == number }) {
							require.Equal(t, Taken, v.Decision, "%s %d is there", n, number)
						}
					case taken, void[n] != 0 && number > void[n]:
						require.Contains(t, []Decision{Void, Forgotten}, v.Decision, "%s %d", n, number)
					case number > last[n]:
						require.Contains(t, []Decision{Sealed, Forgotten}, v.Decision, "%s %d", n, number)
						if uncovered == 0 {
							require.Equal(t, Sealed, v.Decision, "%s %d is not there, and the table knows all", n, number)
						}
					default: // from an earlier shard
						require.Contains(t, []Decision{Sealed, Forgotten}, v.Decision, "%s %d", n, number)
					}
				}
			}
		}
		again, upto, err := RestoreWriters(table)
		require.NoError(t, err)
		require.Equal(t, covered, upto)
		look(again)
		// The same with a table from a table, as in a copy.
		copied, upto, err := RestoreWriters(func() []byte {
			w, upto, err := RestoreWriters(table)
			require.NoError(t, err)
			return w.AppendTable(nil, upto)
		}())
		require.NoError(t, err)
		require.Equal(t, covered, upto)
		look(copied)
	})
}

// The format of a table; damage is detected.
func TestTableOfWriters(t *testing.T) {
	w := NewWriters()
	w.Learn(&Outcome{Head: Head{Writer: "b", Number: 3, Records: 1}, First: 7, Effect: true})
	w.Learn(&Outcome{Head: Head{Writer: "a", Number: 1, Position: 1, Records: 300}, First: 8, Effect: true})
	w.Learn(&Outcome{Head: Head{Writer: "a", Number: 2, Position: 301, Records: 1}, First: 308})
	require.Equal(t, Append, w.Admit("not ordered", 1, true).Decision)
	b := w.AppendTable(nil, 302)
	require.Equal(t, "545253570100"+"ae02"+"02"+"0161"+"02"+"02"+"0162"+"03"+"00"+"ebfa003e", hex.EncodeToString(b))
	for i := range b {
		_, _, err := RestoreWriters(b[:i])
		require.ErrorIs(t, err, sharedlog.ErrCorrupt, "cut to %d bytes", i)
		flipped := slices.Clone(b)
		flipped[i] ^= 0x40
		_, _, err = RestoreWriters(flipped)
		require.Error(t, err, "byte %d flipped", i)
	}
	again, upto, err := RestoreWriters(b)
	require.NoError(t, err)
	require.EqualValues(t, 302, upto)
	require.Equal(t, b, again.AppendTable(nil, upto))
	again.Seal()
	require.Equal(t, Forgotten, again.Look("b", 3).Decision, "its group has not been read")
	require.Equal(t, Sealed, again.Look("b", 4).Decision)
	require.Equal(t, Sealed, again.Look("not ordered", 1).Decision)
	require.Equal(t, Void, again.Look("a", 3).Decision)
}

// Whatever a table with a valid checksum contains, decoding fails or returns a table that can be
// used and encoded.
func FuzzTableOfWriters(f *testing.F) {
	f.Add([]byte("\xae\x02\x02\x01a\x02\x02\x01b\x03\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append([]byte("TRSW\x01\x00"), b...)
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, codec.Castagnoli))
		w, upto, err := RestoreWriters(b)
		if err != nil {
			return
		}
		w.Learn(&Outcome{Head: Head{Writer: "a", Number: 3, Records: 1}, First: 1, Effect: true})
		w.Seal()
		w.Look("a", 2)
		_, again, err := RestoreWriters(w.AppendTable(nil, upto))
		require.NoError(t, err)
		require.Equal(t, upto, again)
	})
}
