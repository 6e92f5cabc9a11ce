package wire

import (
	"encoding/binary"
	"hash/crc32"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
)

// Digest returns the digest of a group in a replica (storage/digest): the CRC32C of its body, its
// LSN and its outcome. Replicas compare digests to find damage.
//
//	body | first u64 LE | records u32 LE | effect (1)
func Digest(body []byte, first sharedlog.LSN, records uint32, effect bool) uint32 {
	var b [13]byte
	binary.LittleEndian.PutUint64(b[:], uint64(first))
	binary.LittleEndian.PutUint32(b[8:], records)
	if effect {
		b[12] = 1
	}
	return crc32.Update(crc32.Checksum(body, codec.Castagnoli), codec.Castagnoli, b[:])
}
