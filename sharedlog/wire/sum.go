package wire

import (
	"encoding/binary"
	"hash/crc32"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
)

const sumSize = 4

// Sum is the checksum of a record: 1<<32 + the CRC32C. The zero Sum means that the record was
// appended without a checksum.
type Sum uint64

// Known reports whether there is a checksum.
func (s Sum) Known() bool { return s != 0 }

// At returns the checksum as it is sent to a reader: it covers the record's LSN, too. s must be
// known.
func (s Sum) At(lsn sharedlog.LSN) uint32 { return uint32(s) ^ uint32(lsn) ^ uint32(lsn>>32) }

// SumOf returns the checksum of record i from the checksums of a group (Decoded.Sums).
func SumOf(sums []byte, i int) Sum {
	if sums == nil {
		return 0
	}
	return 1<<32 | Sum(binary.LittleEndian.Uint32(sums[sumSize*i:]))
}

// Row is the encoding of a record that its checksum covers: tags n{tag} length data.
type Row []byte

// Sum returns the checksum of the record.
func (r Row) Sum() Sum { return 1<<32 | Sum(crc32.Checksum(r, codec.Castagnoli)) }

// Compute returns the checksum of a record. It uses the scratch buffer and returns it for the next
// call.
func Compute(r *sharedlog.Record, scratch []byte) (Sum, []byte) {
	scratch = binary.AppendUvarint(scratch[:0], uint64(len(r.Tags)))
	for _, t := range r.Tags {
		scratch = codec.AppendString(scratch, t)
	}
	scratch = binary.AppendUvarint(scratch, uint64(len(r.Data)))
	return 1<<32 | Sum(crc32.Update(crc32.Checksum(scratch, codec.Castagnoli), codec.Castagnoli, r.Data)), scratch
}
