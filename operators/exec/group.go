package exec

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// HashKey returns the hash of a serialised key that determines its key group: xxhash64 with seed 0.
func HashKey(key []byte) uint64 { return xxhash.Sum64(key) }

// GroupOf returns the key group of a key with this hash, among `groups` of
// them: the hash's high bits, for any count (the hash as a fraction of 2⁶⁴,
// times the count, rounded down).
func GroupOf(hash uint64, groups int) int {
	hi, _ := bits.Mul64(hash, uint64(groups))
	return int(hi)
}

// SubGroupOf returns the key's sub-group within its key group, among `subs` of them: from the bits
// after those that GroupOf uses.
func SubGroupOf(hash uint64, groups, subs int) int {
	_, lo := bits.Mul64(hash, uint64(groups))
	hi, _ := bits.Mul64(lo, uint64(subs))
	return int(hi)
}
