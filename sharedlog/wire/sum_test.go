package wire

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

var summedGroup = sharedlog.Group{
	Writer: "w", Number: 2,
	Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x", "yz"}, Data: []byte("d")}, {Tags: []sharedlog.Tag{"x"}}},
}

// The bytes of a head with checksums, and of one without, as programs of feature level 1 write it;
// both can be decoded.
func TestHeadBytes(t *testing.T) {
	rows := []string{"\x02\x01x\x02yz\x01d", "\x01\x01x\x00"} // the bytes that the sums cover
	var sums string
	for _, r := range rows {
		c := crc32.Checksum([]byte(r), crc32.MakeTable(crc32.Castagnoli))
		sums += fmt.Sprintf("%02x%02x%02x%02x", byte(c), byte(c>>8), byte(c>>16), byte(c>>24))
	}
	const before, behind = "0177" + "02" + "00" + "00", "02" + "0178" + "02797a" + "01" + "01" + "0178" + "00"
	for _, x := range []struct {
		sums bool
		want string
	}{{false, "01" + before + behind}, {true, "03" + before + sums + behind}} {
		head := AppendHead(nil, &summedGroup, true, x.sums)
		require.Equal(t, x.want, hex.EncodeToString(head))
		var d Decoded
		require.NoError(t, d.Decode(append(head, 'd'), len(head), 2))
		require.Len(t, d.Group.Records, 2)
		require.True(t, d.Opens)
		require.Equal(t, x.sums, d.Sums != nil)
		w := d.Body()
		require.Equal(t, append(head, 'd'), w.Bytes, "a copy has the same bytes")
		var e Decoded
		_, err := new(Body).Take(append(w.AppendPrefix(nil), w.Bytes...))
		require.NoError(t, err)
		require.NoError(t, w.Decode(&e))
		for i := range rows {
			sum := SumOf(e.Sums, i)
			require.Equal(t, x.sums, sum.Known())
			if x.sums {
				require.Equal(t, Row(rows[i]).Sum(), sum)
			}
		}
	}
}

// A checksum matches one record at one LSN.
func TestSumOfARecord(t *testing.T) {
	record := func() sharedlog.Record {
		return sharedlog.Record{Tags: []sharedlog.Tag{"ab", "c"}, Data: []byte("data")}
	}
	r := record()
	sum, scratch := Compute(&r, nil)
	for what, change := range map[string]func(r *sharedlog.Record){
		"data":               func(r *sharedlog.Record) { r.Data[0] ^= 1 },
		"length":             func(r *sharedlog.Record) { r.Data = r.Data[:3] },
		"tag":                func(r *sharedlog.Record) { r.Tags[0] = "bb" },
		"tags cut elsewhere": func(r *sharedlog.Record) { r.Tags[0], r.Tags[1] = "a", "bc" },
		"order of tags":      func(r *sharedlog.Record) { r.Tags[0], r.Tags[1] = "c", "ab" },
		"tag less":           func(r *sharedlog.Record) { r.Tags = r.Tags[:1] },
	} {
		r := record()
		change(&r)
		var other Sum
		other, scratch = Compute(&r, scratch)
		require.NotEqual(t, sum, other, what)
	}
	r = record()
	again, _ := Compute(&r, scratch)
	require.Equal(t, sum, again)
	for _, lsn := range []sharedlog.LSN{0, 2, 3, 1<<31 + 1, 1<<32 + 1, 1<<63 + 1} {
		require.NotEqual(t, sum.At(1), sum.At(lsn))
	}
}

// A head with truncated checksums is an error.
func TestSumsCutShort(t *testing.T) {
	head := AppendHead(nil, &summedGroup, false, true)
	var d Decoded
	for n := range head {
		require.Error(t, d.Decode(head[:n], n, 2))
	}
}

func TestSumsCostNoAllocation(t *testing.T) {
	var head, scratch []byte
	var d Decoded
	work := func() {
		head = AppendHead(head[:0], &summedGroup, false, true)
		head = append(head, 'd')
		if d.Decode(head, len(head)-1, 2) != nil {
			panic("it does not decode")
		}
		_, scratch = Compute(&d.Group.Records[0], scratch)
	}
	work()
	require.Zero(t, testing.AllocsPerRun(100, work))
}

// For any input, Decode fails or returns a group that encodes to a body which decodes to the same
// group.
func FuzzBody(f *testing.F) {
	for _, sums := range []bool{false, true} {
		head := AppendHead(nil, &summedGroup, true, sums)
		f.Add(append(head, 'd'), len(head), 2)
	}
	f.Fuzz(func(t *testing.T, b []byte, head, count int) {
		var d, e Decoded
		if d.Decode(b, head, count) != nil {
			return
		}
		var w Body
		w.Encode(&d.Group, d.Opens)
		require.NoError(t, w.Decode(&e))
		require.Equal(t, d.Group, e.Group)
		for i := range e.Group.Records {
			sum, _ := Compute(&e.Group.Records[i], nil)
			require.Equal(t, sum, SumOf(e.Sums, i))
		}
	})
}

func benchGroup(records, size int) *sharedlog.Group {
	g := &sharedlog.Group{Writer: "job/task.3", Number: 300}
	for range records {
		g.Records = append(g.Records, sharedlog.Record{Tags: []sharedlog.Tag{"job/stage/17"}, Data: make([]byte, size)})
	}
	return g
}

// BenchmarkEncode measures a client's work for a group, with record checksums and without.
func BenchmarkEncode(b *testing.B) {
	for _, x := range [][2]int{{1, 100}, {16, 1 << 10}, {1, 64 << 10}} {
		for _, sums := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dx%d/sums=%v", x[0], x[1], sums), func(b *testing.B) {
				g := benchGroup(x[0], x[1])
				data := make([][]byte, len(g.Records))
				for i := range data {
					data[i] = g.Records[i].Data
				}
				b.ReportAllocs()
				for b.Loop() {
					head := AppendHead(nil, g, false, sums)
					CRC(head, data...)
				}
			})
		}
	}
}

// BenchmarkDecode measures a storage node's work for a group.
func BenchmarkDecode(b *testing.B) {
	for _, x := range [][2]int{{1, 100}, {16, 1 << 10}, {1, 64 << 10}} {
		for _, sums := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dx%d/sums=%v", x[0], x[1], sums), func(b *testing.B) {
				g := benchGroup(x[0], x[1])
				w := Body{Bytes: AppendHead(nil, g, false, sums), Records: x[0]}
				w.Head = len(w.Bytes)
				for i := range g.Records {
					w.Bytes = append(w.Bytes, g.Records[i].Data...)
				}
				w.CRC = CRC(w.Bytes)
				m := append(w.AppendPrefix(nil), w.Bytes...)
				b.ReportAllocs()
				for b.Loop() {
					var w Body
					if _, err := w.Take(m); err != nil {
						b.Fatal(err)
					}
					if err := w.Decode(new(Decoded)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
